"""How any agent is opened: its program found, a folder of its own made, and where it fails, told why and what to do.

What it is started with and how it is greeted is each provider's own."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from amux.core.errors import Unavailable, Uncertain
from amux.providers.process import End, Process
from amux.providers.unanswered import Rejected

REMEDY = 'Install it with `pip install "amux[agents]"`; `amux doctor` says what is missing.'
ENDING_SECONDS = 1.0  # between the last line of an agent and its end


def installed(agent: str, package: str, *inside: str) -> Path:
    """The program at that place in an installed package. Raises Unavailable, saying what to do, when it is missing."""
    found = importlib.util.find_spec(package)
    program = Path(found.origin).parent.joinpath(*inside) if found and found.origin else None
    if program is None or not program.is_file():
        raise Unavailable(f"The {agent} program is not installed. {REMEDY}")
    return program


@contextmanager
def folder(agent: str, state: Path) -> Iterator[None]:
    """The agent's own folder in its Session's home, to be written into within. Raises Unavailable where that fails."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except OSError as error:
        told = f"{agent} needs {state} for itself: {error.strerror}. Make AMUX_HOME writable for amux."
        raise Unavailable(told) from error


@asynccontextmanager
async def greeting(
    agent: str, process: Process, *, meaning: Callable[[str], Exception | None] = lambda _: None
) -> AsyncIterator[None]:
    """The agent is greeted within; where that fails nothing of it is left.

    Raises what its last words mean, where `meaning` knows them, else Unavailable: nothing was said in the conversation,
    so nothing is uncertain. What else is raised within goes through."""
    try:
        yield
    except (Uncertain, Unavailable) as error:
        raise await _unopened(process, error, meaning) from error
    except Rejected as error:
        await process.kill()
        raise Unavailable(f"{agent} did not open the conversation: {error.message}") from error
    except BaseException:
        await process.kill()
        raise


async def _unopened(process: Process, error: Exception, meaning: Callable[[str], Exception | None]) -> Exception:
    """Why it did not open: its own end, where it came to one, says more than the request that failed."""
    end: End | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDING_SECONDS):
            end = await process.wait()
    if end is None:
        await process.kill()
        return Unavailable(f"{error} {REMEDY}")
    return meaning("\n".join(end.last_words)) or await process.failure()
