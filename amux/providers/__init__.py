"""Agents: one file a provider, each behind its Guard. What is theirs stops here; they yield the same ProviderEvents."""
