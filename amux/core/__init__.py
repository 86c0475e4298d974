"""The pure heart: what is known and what follows from it. No I/O, no clock, no randomness, no await."""
