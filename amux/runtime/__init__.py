"""Use cases: async, and speaking only to ports. Decisions come from the core, vendor types stop at the edges."""
