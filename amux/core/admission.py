"""Who may drive a Session and who may control it: two checks, and neither implies the other (B7).

Seeing a card or a topic authorises nobody. A missing identity is refused."""

from dataclasses import dataclass

from amux.core.ids import Principal


@dataclass(frozen=True, slots=True)
class Access:
    """Who may do what with one bot. `drivers` None: every member of the chat may drive."""

    owner: Principal | None = None
    drivers: frozenset[Principal] | None = None


def may_drive(who: Principal | None, access: Access) -> bool:
    """Whether this person's messages may start or join work, and whether they may stop it or answer its requests."""
    if who is None:
        return False
    return access.drivers is None or who in access.drivers or who == access.owner
