"""The gates of `make check` that no library brings, and the tests that see each gate red."""
