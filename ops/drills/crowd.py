"""The crowd: people in many topics who keep talking to the bot, and remember nothing but what the cloud's ledger says."""

import asyncio
import random
from dataclasses import dataclass, field

from amux.sandbox import feishu
from amux.sandbox.ledger import Ledger
from amux.sandbox.records import ThreadId
from amux.sandbox.world import World

OPENING, MORE = "Look at part", "And point"  # how each of its messages begins


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
            self.topics.append(self.world.open_topic(feishu.USER_A, feishu.PAYMENTS, f"{OPENING} {number}."))

    def talk(self) -> None:
        """Begin to talk."""
        self._talking = asyncio.create_task(self._talk(), name="crowd")

    async def hush(self) -> None:
        """Say nothing more."""
        if self._talking:
            self._talking.cancel()
            await asyncio.gather(self._talking, return_exceptions=True)

    def flood(self) -> None:
        """Everybody speaks at once, in every topic."""
        for topic in self.topics:
            self.say(topic)

    def newcomers(self, topics: int) -> None:
        """So many more topics, each of one message."""
        for _ in range(topics):
            self._said += 1
            self.world.open_topic(feishu.USER_A, feishu.PAYMENTS, f"{OPENING} {self._said} too.")

    def accepted(self) -> frozenset[str]:
        """The inputs that were acknowledged to their senders: what amux has promised."""
        acknowledged = Ledger(self.world).acknowledged(feishu.CODER)
        return frozenset(f"feishu:{feishu.CODER}:{message}" for message in acknowledged)

    async def _talk(self) -> None:
        while True:
            self.say(self.dice.choice(self.topics))
            await asyncio.sleep(self.dice.expovariate(self.rate))

    def say(self, topic: ThreadId) -> None:
        """One more message in that topic, by User A mostly."""
        self._said += 1
        who = feishu.USER_A if self.dice.random() < 0.7 else feishu.USER_B
        self.world.say(who, feishu.PAYMENTS, f"{MORE} {self._said}.", topic=topic)
