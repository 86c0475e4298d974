"""One file a step, pre and post; a step that has been released is never edited."""
