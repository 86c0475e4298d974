"""`chaos`: every harm there is, in an order that its seed decides."""

import random
from collections.abc import Collection


def drawn(names: Collection[str], seed: int, number: int) -> str:
    """The harm of that round: all come once, in an order of the seed's, then all again in another."""
    turn, at = divmod(number, len(names))
    order = sorted(names)
    random.Random(f"chaos {seed} {turn}").shuffle(order)
    return order[at]
