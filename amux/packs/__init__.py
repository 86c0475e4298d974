"""Packs: folders of experts and shortcuts, read when something is launched and never after (S2)."""
