"""The fault harness: real servers and processes, a crowd of senders, harm done to them, then a count of what became of
every message that was acknowledged. It judges from outside: by the crowd's record, Postgres and the agents' own record."""
