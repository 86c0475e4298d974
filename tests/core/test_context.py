"""What amux says to an agent by itself: marked, bounded, and every cancelled input named."""

import pytest

from amux.core.context import MAX_QUOTE, cancellation_note
from tests.build import said


def test_nothing_cancelled_needs_no_note() -> None:
    assert cancellation_note(()) == ""


@pytest.mark.rule("I6")
def test_the_note_names_every_cancelled_input_and_its_origin() -> None:
    note = cancellation_note((said("user_a", "use tabs"), said("user_b", "push it\nnow")))
    assert note == (
        "[Note from amux: the previous turn was stopped by a person. These messages were cancelled with it and must "
        'not be acted on:\n- "use tabs"\n- "push it now"]'
    )


def test_a_long_message_is_quoted_in_part() -> None:
    note = cancellation_note((said("user_a", "长" * (MAX_QUOTE + 5)),))
    assert note.count("长") == MAX_QUOTE
    assert note.endswith('[5 characters more]"]')
