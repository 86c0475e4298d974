"""Who may drive: nobody by what they see, and never somebody whom Feishu does not name."""

import pytest

from amux.core.admission import Access, may_drive
from amux.core.ids import Principal

A, B, O = map(Principal, ("user_a", "user_b", "owner"))  # noqa: E741
EVERYONE, CHOSEN, NOBODY = Access(O), Access(O, frozenset({A})), Access(None, frozenset())
CASES: dict[str, tuple[Principal | None, Access, bool]] = {
    "a member where all may": (B, EVERYONE, True),
    "one who was chosen": (A, CHOSEN, True),
    "one who was not": (B, CHOSEN, False),
    "the owner, named or not": (O, CHOSEN, True),
    "an owner-only bot and its owner": (O, Access(O, frozenset()), True),
    "an owner-only bot and a member": (A, Access(O, frozenset()), False),
    "a missing identity where all may": (None, EVERYONE, False),
    "a missing identity where the owner is missing too": (None, NOBODY, False),
    "anybody where nobody may": (A, NOBODY, False),
}


@pytest.mark.rule("B7")
@pytest.mark.parametrize(("who", "access", "expected"), CASES.values(), ids=CASES)
def test_may_drive(who: Principal | None, access: Access, expected: bool) -> None:
    assert may_drive(who, access) is expected
