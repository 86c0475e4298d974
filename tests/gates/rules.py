"""The pytest plug-in behind `--rules`: how many tests each rule of docs/requirements.md has. With it nothing runs.

It exits 1 while a rule has no test; with `--rules-due LETTERS` only the rules of these letters count. A test that names
a rule which does not exist stops every run.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

RULES = "docs/requirements.md"
tests_of_rule = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("amux")
    group.addoption("--rules", action="store_true", help="run nothing; say how many tests each rule has")
    group.addoption("--rules-due", metavar="LETTERS", help="with --rules: fail only for rules of these letters")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rules = known_rules(config.rootpath / RULES)
    counted = Counter(rule for item in items for rule in set(rules_of(item)))
    if unknown := sorted(counted.keys() - rules):
        raise pytest.UsageError(f"{RULES} has no rule {', '.join(unknown)}")
    config.stash[tests_of_rule] = {rule: counted[rule] for rule in rules}


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With --rules nothing runs; a collection that failed goes its ordinary way."""
    return True if session.config.getoption("rules") and not session.testsfailed else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if config.getoption("rules") and session.exitstatus == pytest.ExitCode.OK and due_without_test(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("rules"):
        return
    for line in report(config.stash.get(tests_of_rule, {})):
        terminalreporter.write_line(line)
    if config.getoption("rules_due") and (due := due_without_test(config)):
        terminalreporter.write_line(f"due, and without a test: {' '.join(due)}")


def known_rules(path: Path) -> dict[str, None]:
    """The ids of the rules, in the order of their tables."""
    return dict.fromkeys(re.findall(r"^\| ([A-Z]\d+) \|", path.read_text(encoding="utf-8"), re.MULTILINE))


def rules_of(item: pytest.Item) -> Iterator[str]:
    for marker in item.iter_markers("rule"):
        yield from marker.args


def due_without_test(config: pytest.Config) -> list[str]:
    """The rules that must have a test by now and have none."""
    letters = config.getoption("rules_due")
    counted = config.stash.get(tests_of_rule, {})
    return [rule for rule, tests in counted.items() if not tests and (letters is None or rule[0] in letters)]


def report(counted: dict[str, int]) -> Iterator[str]:
    for rule, tests in counted.items():
        yield f"{rule} {tests} test{'s' if tests > 1 else ''}" if tests else f"{rule} no test"
    yield f"{sum(1 for tests in counted.values() if tests)} of {len(counted)} rules have tests"
