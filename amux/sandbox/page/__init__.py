"""The sandbox page: a messenger in the browser in which one person can be three. It shows what is in the World, and what
is done on it is done to the World; it knows nothing of amux beyond what amux sent."""
