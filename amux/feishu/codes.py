"""What Feishu's error codes mean for us: a table, and one function that turns a code into a family of failure.

Pure. A code that several endpoints use for several things is not here: the caller expects it and reads it itself.
"""

import re
from dataclasses import dataclass

from amux.core.errors import Broken, Refused, Unavailable, Uncertain

LIMITED = 99991400
TOKEN = frozenset({99991661, 99991663, 99991664, 99991665, 99991668, 99991671})
SCOPE = frozenset({99991672, 99991679})
BAD_CREDENTIALS = frozenset({10003, 10014, 10015})
GONE = frozenset({230011, 230019, 230050, 230073, 230110, 231003})  # what we answer to, or its topic, is not there
NO_THREADS = frozenset({230071, 230072})  # on reply only
OUTRUN = frozenset({300317, 300120})  # a sequence that is not above the last one: somebody newer was there
NO_ENTITY = frozenset({200740, 200750, 300311})
CONTENT = frozenset({230099, 11310, 100290, 200570, 200621, 200861, 300301, 300302, 300303, 300305, 300310})

CREDENTIALS = (
    "Feishu does not accept the app's credentials. Copy App ID and App Secret from the developer console, page "
    "Credentials & Basic Info, into AMUX_FEISHU_APP_ID and AMUX_FEISHU_APP_SECRET (or feishu_app_secret in amux.toml)."
)
GRANT = "Grant it in the developer console, page Permissions & Scopes, and publish a version of the app."
_REFUSED = {
    230002: "The bot is not in that chat any more: add it again.",
    232009: "That chat has been dissolved.",
    230013: "The app is not available to that person: widen its availability in the developer console.",
    230006: "The app's bot ability is off: switch it on in the developer console and publish a version.",
    230027: "The app may not do that in this chat; external groups need a permission of their own.",
    230035: "The bot has been muted in that chat.",
    230018: "The settings of that group do not let the bot speak.",
    230038: "Feishu does not let the bot speak to people of another organisation in private.",
    230075: "Feishu takes no such message in a secret chat.",
    230022: "Feishu holds the text back: its filter finds it sensitive.",
    230028: "Feishu holds the text back: the organisation's data protection does not let it out.",
    230031: "The message is older than 14 days; Feishu changes it no more.",
    **dict.fromkeys(GONE, "The message it answers, or its topic, is gone or cannot be seen by the bot."),
    **dict.fromkeys(NO_ENTITY, "Feishu has dropped that card: after 14 days it changes no more."),
    **dict.fromkeys((200860, 230025), "The card is too large for Feishu."),
    **dict.fromkeys(CONTENT, "Feishu cannot show that card."),
}
_OURS = frozenset({230001, 230054, 230055, 9499, 99992402})  # wrong parameters: no other caller makes them right
_LATER = {
    230020: "Too much was said in that chat within a second.",
    11232: "Feishu is flooded.",
    230049: "The message is still being sent.",
    200810: "Somebody is just pressing a button of that card.",
}


def error(code: int, said: str, call: str) -> Exception:
    """The failure that `code` stands for. `said` is the platform's own sentence; only ids of its own are taken from it.

    An unknown code is Uncertain: what it leaves behind is not known either."""
    if code in BAD_CREDENTIALS:
        return Refused(f"{CREDENTIALS} (code {code})", key="bad_credentials")
    if code in SCOPE:
        named = scopes(said)
        lacks = f"permission {named}" if named else "a permission that Feishu does not name"
        return Refused(f"The app lacks {lacks} ({call}: code {code}). {GRANT}", key="missing_scope", scopes=named)
    if code in _REFUSED:
        inner = re.search(r"ErrCode:? ?(\d+)", said)
        return Refused(f"{_REFUSED[code]} ({call}: code {code}{f', {inner[1]}' if inner else ''})")
    if code in _LATER or code in TOKEN or code == LIMITED:
        why = _LATER.get(code, "Feishu refused the app's token twice.")
        return Unavailable(f"{why} Nothing was done; it is tried again. ({call}: code {code})")
    if code in _OURS:
        return Broken(f"{call}: code {code}. Feishu says that we made that call wrongly; nothing was done.")
    return Uncertain(f"{call} answered an unknown code {code}; look it up and add it to amux/feishu/codes.py.")


def scopes(said: str) -> str:
    """The scopes that the platform's sentence names, any one of which will do; "" where it names none."""
    return " or ".join(dict.fromkeys(re.findall(r"[a-z]+(?::[a-z0-9_.]+)+", said)))


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a long connection, for people; `mendable` where waiting will not do and one of them must act."""

    words: str
    mendable: bool = False


_LINK_BUSY = frozenset({1, 500, 502, 503, 504, 1000040343})
_LINK_CREDENTIALS = BAD_CREDENTIALS | {514, 1000040344, 1000040345}


def link_refused(code: int, said: str) -> Trouble:
    """Why no long connection came about. `said` is the platform's own sentence."""
    if code in _LINK_CREDENTIALS:
        return Trouble(f"{CREDENTIALS} (code {code})", mendable=True)
    if code == 1000040350:
        return Trouble("The app has all its 50 connections: another process uses the same app id. (code 1000040350)")
    if code == 1000040351:
        words = "The app is of the other cloud: set AMUX_FEISHU_DOMAIN to https://open.larksuite.com, or back."
        return Trouble(words, mendable=True)
    if code in _LINK_BUSY:
        return Trouble(f"Feishu's endpoint is busy. (code {code})")
    why = f"Feishu refused the long connection (code {code}: {said})"
    mend = "switch it on under Events & Callbacks and publish a version, or mend AMUX_FEISHU_APP_SECRET."
    return Trouble(f"{why}: {mend}", mendable=True)
