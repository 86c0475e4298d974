"""The loopback models, asked over HTTP as agents ask them."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from amux.sandbox.models import Models, serving
from amux.sandbox.replies import Call, Drop, Fail, Hang, Hold, Reply, Say, Shell, Think

Frames = list[dict[str, object]]


@pytest.fixture
def models() -> Models:
    return Models(seconds=0)


@pytest.fixture
async def client(models: Models) -> AsyncIterator[httpx2.AsyncClient]:
    async with serving(models) as url, httpx2.AsyncClient(base_url=url, timeout=10) as client:
        yield client


def codex(*items: object, model: str = "loopback", **odd: object) -> dict[str, object]:
    """A Responses request as Codex sends it: developer messages, its own context, fields that nobody here knows."""
    context = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>x"}]}
    tools = {"type": "additional_tools", "role": "developer", "tools": [{"type": "namespace", "name": "functions"}]}
    return {"model": model, "stream": True, "input": [tools, context, *items], "prompt_cache_key": "thread-1", **odd}


def user(text: str) -> dict[str, object]:
    return {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": text}]}


def claude(*messages: object, **odd: object) -> dict[str, object]:
    return {
        "model": "claude-sonnet-4-5",
        "stream": True,
        "max_tokens": 32000,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
        "system": [{"type": "text", "text": "You are", "cache_control": {"type": "ephemeral"}}],
        "metadata": {"user_id": "session-1"},
        "messages": list(messages),
        **odd,
    }


def frames(text: str) -> Frames:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def kinds(text: str) -> list[str]:
    return [str(frame["type"]) for frame in frames(text)]


async def test_responses_streams_text_in_pieces_and_ends_with_usage(models: Models, client: httpx2.AsyncClient) -> None:
    models.script("MARK", (Think("hm"), Say("three small words")))
    answer = await client.post("/v1/responses", json=codex(user("MARK"), tools=None))
    assert kinds(answer.text) == [
        "response.created",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.output_item.done",
        "response.output_item.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_item.done",
        "response.completed",
    ]
    deltas = [frame["delta"] for frame in frames(answer.text) if frame["type"] == "response.output_text.delta"]
    assert deltas == ["three ", "small ", "words"]


async def test_responses_calls_the_shell_and_other_tools(models: Models, client: httpx2.AsyncClient) -> None:
    models.script("MARK", (Shell("ls"), Call("tool", {"a": 1}, namespace="mcp__x")))
    answer = await client.post("/v1/responses", json=codex(user("MARK")))
    done = [frame["item"] for frame in frames(answer.text) if frame["type"] == "response.output_item.done"]
    calls = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in done if isinstance(item, dict)]
    assert calls == [
        {"type": "function_call", "name": "exec_command", "arguments": '{"cmd": "ls"}'},
        {"type": "function_call", "name": "tool", "namespace": "mcp__x", "arguments": '{"a": 1}'},
    ]


async def test_messages_streams_thinking_text_and_a_tool(models: Models, client: httpx2.AsyncClient) -> None:
    models.script("MARK", (Think("hm"), Say("two words"), Shell("ls")))
    answer = await client.post("/v1/messages?beta=true", json=claude({"role": "user", "content": "MARK"}))
    seen = frames(answer.text)
    assert [kind for kind in kinds(answer.text) if kind != "content_block_delta"] == [
        "message_start",
        *["content_block_start", "content_block_stop"] * 3,
        "message_delta",
        "message_stop",
    ]
    deltas = [frame["delta"] for frame in seen if frame["type"] == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "loopback"},
        {"type": "text_delta", "text": "two "},
        {"type": "text_delta", "text": "words"},
        {"type": "input_json_delta", "partial_json": '{"command":"ls","description":"Run a command"}'},
    ]
    assert seen[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


async def test_messages_answers_whole_when_no_stream_is_asked_for(models: Models, client: httpx2.AsyncClient) -> None:
    models.script("MARK", (Say("whole"),))
    body = claude({"role": "user", "content": [{"type": "text", "text": "MARK"}]}, stream=False)
    answer = (await client.post("/v1/messages", json=body)).json()
    assert (answer["content"], answer["stop_reason"]) == ([{"type": "text", "text": "whole"}], "end_turn")
    counted = await client.post("/v1/messages/count_tokens", json=body)
    assert counted.json()["input_tokens"] > 0


@pytest.mark.parametrize(
    ("reply", "status"), [((Fail(429),), 429), ((Fail(500),), 500), ((Fail(400, "no"),), 400)], ids=str
)
async def test_errors_come_with_their_status(
    reply: Reply, status: int, models: Models, client: httpx2.AsyncClient
) -> None:
    models.script("MARK", reply, reply)
    assert (await client.post("/v1/responses", json=codex(user("MARK")))).status_code == status
    body = claude({"role": "user", "content": "MARK"})
    assert (await client.post("/v1/messages", json=body)).json()["type"] == "error"


async def test_a_connection_that_breaks(models: Models, client: httpx2.AsyncClient) -> None:
    models.script("MARK", (Say("half "), Drop()))
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.post("/v1/responses", json=codex(user("MARK")))


async def test_a_model_that_never_answers_is_left_by_its_client(models: Models, client: httpx2.AsyncClient) -> None:
    models.script("MARK", (Hang(),))
    with pytest.raises(httpx2.ReadTimeout):
        await client.post("/v1/responses", json=codex(user("MARK")), timeout=0.2)
    assert models.times_said("MARK") == 1


async def test_a_held_reply_waits_for_the_test(models: Models, client: httpx2.AsyncClient) -> None:
    go = asyncio.Event()
    models.script("MARK", (Hold(go), Say("now")))
    asking = asyncio.ensure_future(client.post("/v1/responses", json=codex(user("MARK"))))
    async with asyncio.timeout(5):
        await models.until_heard("MARK")
        await client.post("/v1/responses", json=codex(user("!say another one is answered meanwhile")))
        assert not asking.done()
        go.set()
        assert "now" in (await asking).text


async def test_an_unknown_model_and_an_unreadable_body_are_refused(client: httpx2.AsyncClient) -> None:
    wrong = await client.post("/v1/responses", json=codex(user("hi"), model="no-such-model"))
    assert (wrong.status_code, wrong.json()["error"]["message"]) == (404, "The model `no-such-model` does not exist.")
    assert (await client.post("/v1/messages", content=b"{")).status_code == 400


async def test_replies_come_in_order_and_then_the_prompt_decides(models: Models, client: httpx2.AsyncClient) -> None:
    script = models.script("MARK", (Say("one"),))
    script.then((Say("two"),))
    said = []
    for _ in range(3):
        answer = await client.post("/v1/responses", json=codex(user("MARK\n!say three")))
        said += [word for word in ("one", "two", "three") if f'"text":"{word}"' in answer.text]
    assert (said, len(script.heard), models.times_said("MARK")) == (["one", "two", "three"], 3, 1)


async def test_a_script_by_api_key_and_one_by_marker_do_not_mix(models: Models, client: httpx2.AsyncClient) -> None:
    one, two = models.script("sk-one", (Say("for one"),)), models.script("MARK2", (Say("for two"),))
    first = await client.post("/v1/responses", json=codex(user("hi")), headers={"authorization": "Bearer sk-one"})
    second = await client.post("/v1/messages", json=claude({"role": "user", "content": "MARK2"}))
    assert ("for one" in first.text, "for " in second.text) == (True, True)
    assert ([heard.said for heard in one.heard], [heard.said for heard in two.heard]) == ([("hi",)], [("MARK2",)])


def said_by(text: str) -> dict[str, object]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


TOOL: tuple[dict[str, object], dict[str, object]] = (
    {"type": "function_call", "name": "exec_command", "call_id": "c", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "ok"},
)


async def test_the_record_knows_what_was_said_and_what_waits_for_an_answer(
    models: Models, client: httpx2.AsyncClient
) -> None:
    body = codex(user("first"), said_by("done"), user("second"), *TOOL, user("steered"), *TOOL)
    await client.post("/v1/responses", json=body)
    heard = models.heard[-1]
    assert (heard.said, heard.asked, heard.results) == (("first", "second", "steered"), ("second", "steered"), 1)
    assert [models.times_said(text) for text in ("first", "second", "never")] == [1, 1, 0]
    assert (await client.get("/v1/heard", params={"text": "steered"})).json() == {"times_said": 1, "requests": 1}
    await client.post("/v1/responses", json=codex(user("stopped"), user("<turn_aborted>\n..."), user("next")))
    assert models.heard[-1].asked == ("next",)


async def test_what_claude_adds_to_a_message_is_taken_off(models: Models, client: httpx2.AsyncClient) -> None:
    reminder = {"type": "text", "text": "<system-reminder>\nbe good\n</system-reminder>"}
    frame = "The user sent a new message while you were working:\nsteered\n\nThis is how Claude Code surfaces ..."
    result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    await client.post(
        "/v1/messages",
        json=claude(
            {"role": "user", "content": [reminder, {"type": "text", "text": "first"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
            {"role": "user", "content": [result, {"type": "text", "text": frame}]},
            {"role": "system", "content": "mid-conversation"},
        ),
    )
    heard = models.heard[-1]
    assert (heard.said, heard.asked, heard.results) == (("first", "steered"), ("first", "steered"), 0)


async def test_the_record_of_a_conversation_with_claude(models: Models, client: httpx2.AsyncClient) -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]}
    stopped = {"role": "user", "content": [{"type": "text", "text": "[Request interrupted by user for tool use]"}]}
    asked = [{"role": "user", "content": text} for text in ("first", "second", "third")]
    await client.post("/v1/messages", json=claude(asked[0], call, result, stopped, asked[1], call, result))
    assert (models.heard[-1].asked, models.heard[-1].results) == (("second",), 1)
    done = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
    await client.post("/v1/messages", json=claude(asked[0], done, asked[2]))
    assert (models.heard[-1].asked, models.times_said("first")) == (("third",), 1)


async def test_what_codex_says_for_a_summary_is_no_persons_word(models: Models, client: httpx2.AsyncClient) -> None:
    ask, told = (
        user("You are performing a CONTEXT CHECKPOINT COMPACTION. Go."),
        user("Another language model started to solve X"),
    )
    first = await client.post(
        "/v1/responses", json=codex(user("!say one\n!tool ls\n!say two"), *TOOL, said_by("two"), ask)
    )
    assert ("two" in first.text, "exec_command" in first.text) == (True, False)
    assert (models.heard[-1].said, models.heard[-1].asked) == (("!say one\n!tool ls\n!say two",), ())
    await client.post("/v1/responses", json=codex(user("first"), told, user("next")))
    assert (models.heard[-1].said, models.heard[-1].asked) == (("first", "next"), ("next",))
    assert "Another language model" in models.heard[-1].instructed


async def test_what_claude_says_for_a_summary_is_no_persons_word(models: Models, client: httpx2.AsyncClient) -> None:
    def one(role: str, text: str) -> dict[str, object]:
        return {"role": role, "content": [{"type": "text", "text": text}]}

    done, ask = one("assistant", "done"), one("user", "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.")
    first = await client.post("/v1/messages", json=claude(one("user", "!say one"), done, ask))
    assert ("one" in first.text, models.heard[-1].said, models.heard[-1].asked) == (True, ("!say one",), ())
    summary = one("user", "This session is being continued from a previous conversation. OWL")
    command = [one("user", f"<{name}>") for name in ("local-command-caveat", "command-name", "local-command-stdout")]
    await client.post("/v1/messages", json=claude(summary, *command, one("user", "next")))
    assert (models.heard[-1].said, models.heard[-1].asked) == (("next",), ("next",))
    assert "OWL" in models.heard[-1].instructed


async def test_the_words_of_a_prompt_decide_where_no_script_does(models: Models, client: httpx2.AsyncClient) -> None:
    prompt = user("please\n!say one\n!tool echo hi\n!say two")
    first = await client.post("/v1/responses", json=codex(prompt))
    second = await client.post("/v1/responses", json=codex(prompt, *TOOL))
    assert ("one" in first.text, "echo hi" in first.text, "two" in first.text) == (True, True, False)
    assert ("two" in second.text, "echo hi" in second.text) == (True, False)
    last = await client.post("/v1/responses", json=codex(user("!tool ls"), *TOOL))
    assert '"text":"Done."' in last.text
    failed = await client.post("/v1/responses", json=codex(user("!fail")))
    assert failed.status_code == 400
    long = await client.post("/v1/responses", json=codex(user("!say " + "漫" * 20)))
    assert [f["delta"] for f in frames(long.text) if f["type"] == "response.output_text.delta"] == ["漫" * 12, "漫" * 8]


async def test_a_plain_prompt_gets_one_command_and_an_answer_that_quotes_it(
    models: Models, client: httpx2.AsyncClient
) -> None:
    first = await client.post("/v1/responses", json=codex(user("mend the roof")))
    assert "exec_command" in first.text
    second = await client.post("/v1/responses", json=codex(user("mend the roof"), *TOOL))
    whole = [frame for frame in frames(second.text) if frame["type"] == "response.output_item.done"]
    assert "> mend the roof" in json.dumps(whole)
    steered = await client.post("/v1/responses", json=codex(user("mend the roof"), *TOOL, user("and the door")))
    assert ("exec_command" in steered.text, "> and the door" in steered.text) == (False, True)
