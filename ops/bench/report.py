"""What a benchmark says: one line of JSON on stdout, the same as a small drawing on stderr."""

from dataclasses import dataclass, field

BAR = 40  # characters


@dataclass(slots=True)
class Report:
    """`ratio` is ours over the limit: of a rate, higher is better; of a latency, lower. `due` is whether the ratio is
    what the project promises, None where nothing is promised; `faults` are what the run's own check found."""

    bench: str
    load_before: float
    ours: dict[str, object] = field(default_factory=dict)
    limit: dict[str, object] = field(default_factory=dict)
    ratio: float | None = None
    shape: dict[str, object] = field(default_factory=dict)
    more: dict[str, object] = field(default_factory=dict)
    due: bool | None = None
    faults: list[str] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """As people's tools read it."""
        return {
            "bench": self.bench,
            "ours": self.ours,
            "limit": self.limit,
            "ratio": self.ratio,
            **self.more,
            "due": self.due,
            "shape": self.shape,
            "faults": self.faults,
            "load_before": self.load_before,
        }


def drawing(report: Report) -> str:
    """The ratio as two bars, and what was wrong with the run."""
    lines = [f"{report.bench}: {report.shape or ''}"]
    if report.ratio:
        longest = max(report.ratio, 1.0)
        for name, value in (("amux", report.ratio), ("limit", 1.0)):
            lines.append(f"  {name:6}{'█' * max(1, round(BAR * value / longest)):{BAR}} {value:g}")
    lines += [f"  {name}: {value}" for name, value in report.more.items()]
    lines += [f"  FAULT {fault}" for fault in report.faults]
    return "\n".join(lines)
