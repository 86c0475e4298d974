"""A loopback world for the demo, the tests and the benchmarks: Feishu's cloud with its people, and the agents' model
servers. It stands outside the house: it imports nothing of it, and nothing below the entry points knows it."""
