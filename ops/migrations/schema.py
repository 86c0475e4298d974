"""The schema in one screenful, for people; a test compares it with what the migrations make.

No query is built of it: statements are SQL constants beside their use in `amux/stores`."""

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()
_big, _text, _when = sa.BigInteger, sa.Text, sa.DateTime(timezone=True)


def _key() -> sa.Column[int]:
    return sa.Column("session", _big, primary_key=True, autoincrement=False)


def _must(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("key", _big, sa.Identity(always=True), primary_key=True),
    *(_must(name, _text) for name in ("target", "id", "snapshot", "title", "label", "token")),
    *(sa.Column(name, _text) for name in ("native_id", "owner", "profile", "engine")),
    *(_must(name, _big) for name in ("epoch", "head_seq")),
    *(sa.Column(name, _big) for name in ("open_turn", "open_seq")),
    sa.Column("held_until", _when),
    _must("made_at", _when),
)
inputs = sa.Table(
    "inputs",
    metadata,
    sa.Column("input_id", _text, primary_key=True),
    sa.Column("pos", _big, sa.Identity(always=True), nullable=False),
    _must("kind", _text),
    sa.Column("payload", _text),
    *(sa.Column(name, _big) for name in ("session", "turn", "accepted_seq")),
    _must("journaled_at", _when),
)
timeline = sa.Table(
    "timeline",
    metadata,
    _key(),
    sa.Column("seq", _big, primary_key=True, autoincrement=False),
    sa.Column("turn_seq", _big),
    *(_must(name, _text) for name in ("kind", "payload")),
    _must("v", sa.SmallInteger),
    _must("at", _when),
)
checkpoints = sa.Table(
    "checkpoints", metadata, _key(), _must("seq", _big), _must("version", sa.SmallInteger), _must("state", _text)
)
bindings = sa.Table(
    "bindings",
    metadata,
    sa.Column("id", _big, sa.Identity(), primary_key=True),
    *(_must(name, _text) for name in ("app", "chat", "topic")),
    sa.Column("thread", _text),
    *(_must(name, _big) for name in ("session", "generation", "since")),
    sa.Column("until", _big),
)
binding_aliases = sa.Table(
    "binding_aliases",
    metadata,
    *(sa.Column(name, _text, primary_key=True) for name in ("app", "chat", "topic")),
    sa.Column("binding", _big, primary_key=True, autoincrement=False),
)
deliveries = sa.Table(
    "deliveries",
    metadata,
    _key(),
    *(_must(name, _big) for name in ("fence", "position", "shown")),
    _must("open", sa.Boolean),
    _must("since", _when),
)
cards = sa.Table(
    "cards",
    metadata,
    _key(),
    sa.Column("slot", _text, primary_key=True),
    *(_must(name, _text) for name in ("place", "reply_to", "uuid", "nonce", "state")),
    *(sa.Column(name, _text) for name in ("card_id", "message_id")),
    sa.Column("turn", _big),
    _must("made_at", sa.Double),
    _must("sequence", _big),
)
schema = sa.Table("schema", metadata, _must("version", sa.Integer), _must("oldest_code", _text))
