"""`python -m amux.cli`: the same as `amux`."""

from amux.cli import main

main()
