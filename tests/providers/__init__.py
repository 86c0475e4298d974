"""Each agent, driven as its owner drives it."""
