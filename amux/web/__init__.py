"""The web edge: health, and Timelines over HTTP. The console comes on top of it."""
