"""What a malicious client sends over each channel, and that nobody else, and nothing that it says, gets further."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gemel import Server
from tests.wire import routes
from tests.wire.server import THROWS, build
from tests.wire.talk import Talk

CHANNELS = ("memory", "unix", "http")
channels = pytest.mark.parametrize("channel", CHANNELS)
both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
MOST_ECHO = 1000


async def answer(talk: Talk) -> Any:
    """The next message, and how long it was."""
    data = await talk.route.next()
    return json.loads(data), len(data)


def request(call_id: Any = 1, method: str = "tools/call", **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}).encode()


@channels
async def test_bytes_that_are_no_text_are_refused_and_the_tool_does_not_run(channel: str) -> None:
    """Not replaced by something else and then executed."""
    server, ran = Server[Any]("text"), list[str]()

    @server.tool
    async def note(text: str) -> None:
        ran.append(text)

    async with getattr(routes, channel)(server) as route:
        talk = await Talk(route, "2025").open()
        for wrong in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc3"):
            text = request(1, name="note", arguments={"text": "TEXT"}).replace(b"TEXT", b"a" + wrong + b"b")
            await route.send(text, "2025")
            refused, _ = await answer(talk)
            assert refused["error"]["code"] == -32700
        assert "error" not in await talk.ask("tools/call", name="note", arguments={"text": "ü€😀"})
    assert ran == ["ü€😀"]


@channels
@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"jsonrpc":"2.0","id":' + b"9" * 100_000 + b',"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":'
        + b"9" * 100_000
        + b"}}}",
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":' + b"[" * 50_000,
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_002,
    ],
    ids=["lists", "objects", "a long id", "a long number", "deep arguments", "a deep _meta"],
)
async def test_nesting_and_numbers_without_end_are_answered_and_nothing_worse(channel: str, text: bytes) -> None:
    """With an error, or for what is not looked at a result; and the next message is served."""
    async with getattr(routes, channel)(build()) as route:
        talk = await Talk(route, "2025").open()
        await route.send(text, "2025")
        refused, length = await answer(talk)
        assert length < MOST_ECHO
        assert "id" in refused or refused["error"]["code"] in (-32700, -32600)
        assert await talk.call("add", a=1, b=2) == "3"


@channels
@both_eras
async def test_what_a_client_says_is_not_said_back_at_length(channel: str, era: str) -> None:
    """The name of a method, a tool, a prompt, a resource, an argument, a revision, a level, a cursor."""
    long = "x" * 10_000
    async with getattr(routes, channel)(build()) as route:
        talk = await Talk(route, era).open()
        for method, params in (
            (long if channel != "http" else "acme/none", {}),
            ("tools/call", {"name": long[:3000], "arguments": {}}),
            ("tools/call", {"name": "add", "arguments": {"a": long, "b": 2}}),
            ("tools/call", {"name": "add", "arguments": {"a": 1, long: 2}}),
            ("prompts/get", {"name": long[:3000]}),
            ("prompts/get", {"name": "greet", "arguments": {long: "x"}}),
            ("tools/list", {"cursor": long}),
            ("logging/setLevel", {"level": long}),
            ("completion/complete", {"ref": {"type": long}, "argument": {"name": long, "value": long}}),
        ):
            await talk.begin(method, **params)
            refused, length = await answer(talk)
            assert length < MOST_ECHO, (method[:40], params.keys())
            assert "error" in refused or refused["result"].get("isError")


@channels
@both_eras
@pytest.mark.parametrize(
    "kind",
    [kind for kind in THROWS if kind in ("unexpected", "value", "group", "exit", "interrupt", "timeout")],
)
async def test_an_error_tells_nothing_of_the_inside(channel: str, era: str, kind: str) -> None:
    """No traceback, path, class, or text of the exception, from a tool and from a method alike."""
    async with getattr(routes, channel)(build()) as route:
        talk = await Talk(route, era).open()
        for method, params in (
            ("tools/call", {"name": "throw", "arguments": {"kind": kind}}),
            ("acme/throw", {"kind": kind}),
            ("tools/call", {"name": "add", "arguments": {"a": {}, "b": []}}),
        ):
            said = json.dumps(await talk.ask(method, **params))
            for inside in ("Traceback", ".py", "/", "1234", "Error(", "pydantic", "msgspec", "Exception", "gemel."):
                assert inside not in said.replace("io.modelcontextprotocol/", ""), said


@channels
@both_eras
async def test_ids_that_look_alike_are_never_mixed_up(channel: str, era: str) -> None:
    """Each answer has its id in its type, and what that request asked for."""
    async with getattr(routes, channel)(build()) as route:
        talk = await Talk(route, era).open()
        ids: list[Any] = [1, "1", 2, "2", 0, "0", "", "1.0", -1, "-1"]
        for number, call_id in enumerate(ids):
            await talk.say({"id": call_id, "method": "tools/call", "params": {
                "name": "add", "arguments": {"a": number, "b": 100}}})  # fmt: skip
        for _ in ids:
            said, _ = await answer(talk)
            (number,) = [
                n for n, call_id in enumerate(ids) if (type(call_id), call_id) == (type(said["id"]), said["id"])
            ]
            assert said["result"]["content"][0]["text"] == str(number + 100)
            ids[number] = object()
        assert all(type(one) is object for one in ids)


@pytest.mark.parametrize("channel", ["memory", "unix"])
async def test_a_second_request_of_an_id_in_flight_is_refused_where_ids_tell_calls_apart(channel: str) -> None:
    """BASE-05: the first one goes on and gets its own answer."""
    async with getattr(routes, channel)(build()) as route:
        talk = await Talk(route, "2025").open()
        await talk.say({"id": 7, "method": "tools/call", "params": {"name": "wait", "arguments": {"name": "w"}}})
        await talk.say({"id": 7, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}})
        refused, _ = await answer(talk)
        assert (refused["id"], refused["error"]["code"]) == (7, -32600)
        assert "result" in await talk.ask("tools/call", name="release", arguments={"name": "w"})
        assert (await talk.answer_to(7))["result"]["content"][0]["text"] == "w"


@pytest.mark.parametrize("era", ["2026"])
async def test_equal_ids_on_posts_of_their_own_get_their_own_answers(era: str) -> None:
    """On HTTP a POST and its answer belong together."""
    async with routes.http(build()) as route:
        talk = await Talk(route, era).open()
        for number in range(20):
            await talk.say({"id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": number}}})
        sums = {(await answer(talk))[0]["result"]["content"][0]["text"] for _ in range(20)}
        assert sums == {str(number) for number in range(20)}
