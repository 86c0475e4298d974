"""What a look at the installation found, and how one line of it reads. It looks at nothing itself."""

import os
import sys
from dataclasses import dataclass
from enum import StrEnum


class Mark(StrEnum):
    """How it stands. Only `broken` makes `amux doctor` fail; `absent` is not there and not asked for."""

    fine = "fine"
    absent = "absent"
    warning = "warning"
    broken = "broken"


GLYPHS = {Mark.fine: "✓", Mark.absent: "·", Mark.warning: "!", Mark.broken: "✗"}
ASCII = {Mark.fine: "ok", Mark.absent: "-", Mark.warning: "!", Mark.broken: "x"}
COLOURS = {Mark.fine: 32, Mark.absent: 2, Mark.warning: 33, Mark.broken: 31}
WIDTH = 10  # of the column that says what it is about


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: what it is, how it stands, in words, and what mends it where something has to be mended."""

    mark: Mark
    what: str
    state: str
    remedy: str = ""

    def row(self) -> dict[str, str]:
        """As `--json` prints it."""
        return {"mark": self.mark, "what": self.what, "state": self.state, "remedy": self.remedy}


def line(finding: Finding) -> str:
    """The line that people read; colours on a terminal only."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    glyph = (GLYPHS if utf8 else ASCII)[finding.mark]
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        glyph = f"\x1b[{COLOURS[finding.mark]}m{glyph}\x1b[0m"
    remedy = f": {finding.remedy}" if finding.remedy else ""
    return f"{glyph} {finding.what:<{WIDTH}} {' '.join(finding.state.split())}{remedy}"
