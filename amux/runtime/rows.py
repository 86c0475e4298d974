"""Sessions and events as people's tools read them: one JSON object each, with the outward names."""

import msgspec

from amux.core import codec
from amux.ports import Recorded, Session


def row(session: Session) -> dict[str, object]:
    """A Session as people's tools read it."""
    return {
        "session": session.ref.id,
        "target": session.ref.target,
        "state": session.label,
        "turn": session.open_turn,
        "seq": session.head,
        "owner": session.owner,
        "engine": session.identity.engine,
        "workspace": session.saved.workspace,
        "title": session.title,
    }


def event_row(session: Session, recorded: Recorded) -> dict[str, object]:
    """An event as people's tools read it."""
    turn = getattr(recorded.event, "turn", None)
    payload = msgspec.to_builtins(recorded.event)
    return {
        **payload,
        "session": session.ref.id,
        "target": session.ref.target,
        "turn": f"{session.ref.id}.{turn}" if turn else None,
        "turn_seq": turn,
        "seq": recorded.seq,
        "kind": codec.KIND_OF[type(recorded.event)][0],
        "at": recorded.at,
    }
