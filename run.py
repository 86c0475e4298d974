#!/usr/bin/env python3
"""Start amux from a fresh clone with nothing but Python: python3 run.py demo

  python3 run.py demo [--once]   the sandbox, with everything it needs; --once plays the tour and ends
  python3 run.py test [ARGS]     all tests; ARGS go to pytest
  python3 run.py setup           only make the environment that tests need
  python3 run.py WORDS           any other words go to the amux command: run.py ls, run.py doctor ...

The environment is .venv beside this file, made once and again when pyproject.toml changes, by uv where there is one.
This file uses the standard library alone and leaves the system's Python as it is. It parses on old Pythons too, so
that they can be told what is missing.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.realpath(__file__))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
AMUX = os.path.join(VENV, "bin", "amux")
STAMP = os.path.join(VENV, "amux-stamp.json")
LOCK = os.path.join(ROOT, ".venv.lock")
EVERYTHING = ("agents", "e2e", "test")
AGENTS = ("codex", "claude")  # engines whose programs come with the extra "agents"


class Failed(Exception):
    """One line for the person: what, why, what to do."""


def main(words: "list[str]") -> int:
    """Make the environment that `words` need, then become the program that they name."""
    if not words or words[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if words else 2
    try:
        check_python()
        ensure(extras_for(words))
        return become(words)
    except KeyboardInterrupt:
        return 130
    except Failed as why:
        say(str(why))
    except OSError as why:
        say("{}: {}. It must be a folder that you may write to; use a clone of your own.".format(ROOT, why))
    return 1


def check_python() -> None:
    if sys.version_info < (3, 11):
        found = ".".join(map(str, sys.version_info[:2]))
        raise Failed("amux needs Python 3.11 or newer, this one is {}. Try: python3.11 run.py".format(found))


def extras_for(words: "list[str]") -> "set[str]":
    """The optional parts that these words need: all for tests, the agents where one is asked for by name."""
    if words[0] in ("test", "setup"):
        return set(EVERYTHING)
    engines = {os.environ.get("AMUX_ENGINE", "")}
    for word, after in zip(words, words[1:] + [""]):
        engines.add(after if word == "--engine" else word.partition("--engine=")[2])
    return {"agents"} if engines.intersection(AGENTS) else set()


def ensure(extras: "set[str]") -> None:
    """Bring .venv up to date and to at least these extras. One process works on it, any other waits."""
    have = standing()
    if have is not None and extras <= have:
        return
    with open(LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Another start is making the environment; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        have = standing()  # the one before us may have made it
        if have is None or not extras <= have:
            build(extras | read_stamp()[1])  # a richer environment is never made poorer


def standing() -> "set[str] | None":
    """The extras that .venv holds for today's pyproject.toml, or None when it must be made."""
    made_of, extras = read_stamp()
    made = made_of == fingerprint() and os.access(PYTHON, os.X_OK) and os.access(AMUX, os.X_OK)
    return extras if made else None


def read_stamp() -> "tuple[str, set[str]]":
    """What .venv was made of, and with which extras; nothing where it was not made to the end."""
    try:
        with open(STAMP) as file:
            stamp = json.load(file)
        return str(stamp["of"]), set(stamp["extras"]).intersection(EVERYTHING)
    except (OSError, ValueError, KeyError, TypeError):
        return "", set()


def fingerprint() -> str:
    """What an environment is made of and for: the dependencies, and the place that its programs point to."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        return hashlib.sha256(file.read() + os.fsencode(ROOT)).hexdigest()


def build(extras: "set[str]") -> None:
    """Make .venv or add to it, and stamp it last, so that what was broken off is made again."""
    say("Making the environment in .venv, once. This takes some seconds, or minutes on a slow line.")
    project = ROOT + ("[{}]".format(",".join(sorted(extras))) if extras else "")
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    uv = shutil.which("uv")
    if uv:
        if not sound():
            run(uv, "venv", *quiet, "--clear", "--python", base_python(), VENV)
        forget_stamp()
        run(uv, "pip", "install", *quiet, "--python", PYTHON, "--editable", project)
    else:
        if not sound() or not has_pip():
            make_venv()
        forget_stamp()
        run(PYTHON, "-m", "pip", "install", *quiet, "--disable-pip-version-check", "--editable", project)
    with open(STAMP + ".new", "w") as file:
        json.dump({"of": fingerprint(), "extras": sorted(extras)}, file)
    os.replace(STAMP + ".new", STAMP)


def forget_stamp() -> None:
    if os.path.exists(STAMP):
        os.unlink(STAMP)


def sound() -> bool:
    """Whether the .venv here can be added to: its Python runs, is new enough, and it lies where it was made."""
    script = "import sys; sys.exit(sys.version_info < (3, 11))"
    activate = os.path.join(VENV, "bin", "activate")
    try:
        with open(activate, encoding="utf-8", errors="surrogateescape") as file:
            return VENV in file.read() and succeeds(PYTHON, "-c", script)
    except OSError:
        return False


def has_pip() -> bool:
    return succeeds(PYTHON, "-m", "pip", "--version")


def make_venv() -> None:
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        raise Failed(
            "This Python cannot make an environment, its venv is missing. "
            "On Debian or Ubuntu: apt-get install python3-venv. Then run this again."
        )
    run(base_python(), "-m", "venv", "--clear", VENV)


def base_python() -> str:
    """The Python below, when this one is .venv's own: that is about to be replaced."""
    return getattr(sys, "_base_executable", None) or sys.executable


def succeeds(*command: str) -> bool:
    silent = subprocess.DEVNULL
    return subprocess.run(command, stdin=silent, stdout=silent, stderr=silent, check=False).returncode == 0


def run(*command: str) -> None:
    """Run to the end, all output to stderr: stdout belongs to the program that comes after."""
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
    if ended:
        name = os.path.basename(command[0])
        raise Failed("The environment could not be made: {} ended with {}, see above.".format(name, ended))


def become(words: "list[str]") -> int:
    """Give this process over to what was asked for."""
    if words[0] == "setup":
        return 0
    argv = [AMUX] + words
    if words[0] == "test":
        os.chdir(ROOT)
        argv = [PYTHON, "-m", "pytest"] + words[1:]
    return os.execv(argv[0], argv)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
