"""What Claude Code says in our words, and ours in its: pure, one answer for one frame or block, nothing remembered.

Tools that nobody here knows are shown by their name, and unknown fields are passed over: they come with every release."""

import re
from collections.abc import Mapping

from amux.extensions import Input, ItemType, Outcome, Usage, Verdict
from amux.providers.pipes import Line
from amux.providers.texts import as_text, bounded

REMEDIES = {
    "authentication_failed": " Check ANTHROPIC_API_KEY.",
    "model_not_found": " Start a Session with a model that ANTHROPIC_BASE_URL serves.",
}
URL = re.compile(r"https?://\S+")
FILES = {"Edit": "update", "MultiEdit": "update", "Write": "write", "NotebookEdit": "update"}
ARGUMENTS = ("command", "file_path", "notebook_path", "path", "pattern", "query", "url", "description", "skill")


def tool(name: str, arguments: Line) -> tuple[ItemType, str, str]:
    """The canonical type, title and text of a tool's call as it starts."""
    if name == "Bash":
        return ItemType.tool, as_text(arguments.get("command")), ""
    main = next((found for key in ARGUMENTS if (found := as_text(arguments.get(key)))), "")
    if verb := FILES.get(name):
        return ItemType.file, f"{verb} {main}", bounded(_change(arguments))
    if name.startswith("mcp__"):
        return ItemType.tool, ".".join(name.split("__")[1:]), ""
    return ItemType.tool, f"{name}: {main}" if main else name, ""


def result(content: object) -> str:
    """The text of what a tool answered."""
    if isinstance(content, str):
        return bounded(content)
    parts = content if isinstance(content, list) else []
    return bounded(
        "\n".join(as_text(part.get("text")) for part in parts if isinstance(part, dict) and part.get("text"))
    )


def question(request: Line) -> tuple[str, str]:
    """What a permission request is about, in one line: the tool and its command. Then the rest: the reason, the change."""
    name, arguments = as_text(request.get("tool_name")), _arguments(request)
    _, title, change = tool(name, arguments)
    said = [as_text(request.get("decision_reason")), as_text(request.get("description")), change]
    asked = title if title.startswith(name) or name.startswith("mcp__") else f"{name}: {title}"
    return asked, "\n".join(filter(None, said))


def verdict(request: Line, given: Verdict) -> dict[str, object]:
    """The answer to a permission request. What is always allowed is one rule, for this conversation alone: the other
    suggestions would open the whole Session, or write into the workspace."""
    if given is Verdict.deny:
        return {"behavior": "deny", "message": "The user does not allow this."}
    allowed: dict[str, object] = {"behavior": "allow", "updatedInput": _arguments(request)}
    if given is Verdict.always:
        allowed["updatedPermissions"] = [_rule(request)]
    return allowed


def _rule(request: Line) -> dict[str, object]:
    rules: object = [{"toolName": request["tool_name"]}]
    if request["tool_name"] == "Bash":
        rules = [{"toolName": "Bash", "ruleContent": as_text(_arguments(request).get("command"))}]
    for suggested in request.get("permission_suggestions") or ():
        if suggested.get("type") == "addRules" and suggested.get("behavior") == "allow":
            rules = suggested["rules"]
            break
    return {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}


def message(inputs: tuple[Input, ...], note: str, uuid: str) -> dict[str, object]:
    """One native message: amux's note, then what people wrote, word for word (H23). Material lies in the workspace and is
    named by its path, where the agent reads it, images too."""
    texts = [note] if note else []
    for said in inputs:
        texts.append(said.text)
        texts += [f"[{m.kind} {m.name}: {m.path}]" for m in said.material]
    return {
        "type": "user",
        "message": {"role": "user", "content": "\n\n".join(filter(None, texts))},
        "parent_tool_use_id": None,
        "session_id": "default",
        "uuid": uuid,
        "client_composed": True,
    }


def compact(uuid: str) -> dict[str, object]:
    """The command that summarises the context. It is no people's text, which would be taken word for word."""
    message = {"role": "user", "content": "/compact"}
    return {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "default", "uuid": uuid}


def usage(spent: Mapping[str, object]) -> Usage:
    """Tokens of one native turn; what was read from the cache is input too."""
    fresh, cached, written, output = (
        value if isinstance(value := spent.get(name), int) else 0
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    )
    return Usage(fresh + cached + written, cached, output)


def outcome(ended: Line) -> tuple[Outcome, str]:
    """How a native turn ended, and Claude's word for a failure. `subtype` and `is_error` say less than they seem to."""
    reason = as_text(ended.get("terminal_reason"))
    if reason == "completed" or (not reason and not ended.get("is_error")):
        return Outcome.completed, ""
    if reason.startswith("aborted"):
        return Outcome.interrupted, ""
    return Outcome.failed, reason or as_text(ended.get("subtype")) or "other"


def readable(text: object) -> str:
    """A message without the address of the model server, which may hold more than people should see."""
    return URL.sub("[address]", as_text(text)).strip()


def _change(arguments: Line) -> str:
    if "new_string" in arguments:
        gone, come = as_text(arguments.get("old_string")), as_text(arguments["new_string"])
        return "\n".join([*(f"-{line}" for line in gone.splitlines()), *(f"+{line}" for line in come.splitlines())])
    return as_text(arguments.get("content")) or as_text(arguments.get("new_source"))


def _arguments(request: Line) -> Line:
    arguments = request.get("input")
    return arguments if isinstance(arguments, dict) else {}
