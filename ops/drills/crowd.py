"""The crowd: people in many topics who keep talking to the bot, and remember nothing but what the cloud's ledger says."""

import asyncio
import random
from dataclasses import dataclass, field

from amux.sandbox import feishu
from amux.sandbox.ledger import Ledger
from amux.sandbox.records import ThreadId
from amux.sandbox.world import World


@dataclass(slots=True)
class Crowd:
    """`sessions` topics; `rate` messages a second over all of them while it talks."""

    world: World
    sessions: int
    rate: float
    dice: random.Random
    topics: list[ThreadId] = field(default_factory=list)
    _talking: asyncio.Task[None] | None = None
    _said: int = 0

    def open(self) -> None:
        """One topic each, with a first message."""
        for number in range(self.sessions):
            self.topics.append(self.world.open_topic(feishu.USER_A, feishu.PAYMENTS, f"Look at part {number}."))

    def talk(self) -> None:
        """Begin to talk."""
        self._talking = asyncio.create_task(self._talk(), name="crowd")

    async def hush(self) -> None:
        """Say nothing more."""
        if self._talking:
            self._talking.cancel()
            await asyncio.gather(self._talking, return_exceptions=True)

    def accepted(self) -> frozenset[str]:
        """The inputs that were acknowledged to their senders: what amux has promised."""
        acknowledged = Ledger(self.world).acknowledged(feishu.CODER)
        return frozenset(f"feishu:{feishu.CODER}:{message}" for message in acknowledged)

    async def _talk(self) -> None:
        while True:
            self.say()
            await asyncio.sleep(self.dice.expovariate(self.rate))

    def say(self) -> None:
        """One more message in some topic, by User A mostly."""
        self._said += 1
        who = feishu.USER_A if self.dice.random() < 0.7 else feishu.USER_B
        self.world.say(who, feishu.PAYMENTS, f"And point {self._said}.", topic=self.dice.choice(self.topics))
