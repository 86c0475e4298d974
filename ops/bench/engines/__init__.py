"""Other engines at the same work, each a program of its own in an environment of its own. Nothing here is of amux."""
