"""Everything that shows that amux keeps its promises."""
