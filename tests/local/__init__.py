"""What must hold for servers and processes on one machine, shown on real ones."""
