"""amux: coding agents as durable conversations."""
