"""How amux runs on one machine: embedded servers, and the supervisor that keeps every process of a home alive."""
