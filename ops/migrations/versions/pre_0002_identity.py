"""pre 0002: a Session's execution identity stands beside its launch snapshot, so that losing one loses neither (S6).

Nullable and not filled here: a row of before has its identity in the snapshot, and is given it when it next opens; older
code writes rows without it. Adding them touches no row."""

from alembic import op

revision, down_revision = "pre_0002", "pre_0001"


def upgrade() -> None:
    op.execute("set local lock_timeout = '4s'")  # better to fail and be run again than to make every append wait
    op.execute("alter table sessions add column profile text, add column engine text")
