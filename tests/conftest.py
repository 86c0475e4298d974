"""What every test shares: one event loop, no settings of the person who runs them, real servers, `--rules`, a browser.

A missing part of a test is a failure, never a skip. The one exception is a browser, which no wheel holds: where none is
found the browser tests are left out by name, in one line, and with CI=true they fail.
"""

import os
import shutil

import pytest

pytest_plugins = ["tests.servers", "tests.whole", "tests.gates.rules"]

NO_BROWSER = "no Chromium is found: set CHROMIUM_PATH, or install it (Debian: apt-get install chromium)"
# Which servers to test with is the caller's to say.
OF_THE_CALLER = {"AMUX_PG_BIN", "AMUX_REDIS_BIN", "AMUX_TEST_POSTGRES_URL", "AMUX_TEST_REDIS_URL"}
left_out = pytest.StashKey[list[str]]()

for name in [name for name in os.environ if name.startswith("AMUX_") and name not in OF_THE_CALLER]:
    del os.environ[name]


def chromium_path() -> str | None:
    """The browser to test with: the one that is set, else one on PATH."""
    candidates = (os.environ.get("CHROMIUM_PATH"), "chromium", "chromium-browser", "google-chrome")
    return next((found for each in candidates if each and (found := shutil.which(each))), None)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium, for tests marked `browser`."""
    found = chromium_path()
    assert found, NO_BROWSER
    return found


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if chromium_path() is None and os.environ.get("CI") != "true" and not config.getoption("rules"):
        config.stash[left_out] = [item.name for item in items if item.get_closest_marker("browser")]
        items[:] = [item for item in items if not item.get_closest_marker("browser")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("browser") and chromium_path() is None:
        pytest.fail(NO_BROWSER, pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if names := config.stash.get(left_out, []):
        terminalreporter.write_line(f"left out, {NO_BROWSER}: {', '.join(names)}")
