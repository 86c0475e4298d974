"""Postgres, which remembers, and Redis, which carries. Each store serves one port and decides nothing."""
