"""What a peer must not be able to do: each attempt is one clear error, nothing of the server shows, and the next call works."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from gemel import Ask, Context, Limits, Server
from tests.server.bare_end import BareEnd, Era
from tests.support import Outgoing
from tests.transports.http_rig import modern, serving

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
CAN_BE_ASKED: dict[str, Any] = {"elicitation": {}}


def shop(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("shop", **options)
    sold: list[str] = []

    @server.tool
    async def buy(ctx: Context, item: str) -> str:
        """Buy, after the user agreed."""
        if not await ctx.elicit(f"Buy {item}?", bool):
            return "not bought"
        sold.append(item)
        return f"bought {item}, {len(sold)} in all"

    @server.tool
    async def give(ctx: Context, item: str) -> str:
        """Another tool that asks the same."""
        return f"gave {item}: {await ctx.elicit(f'Buy {item}?', bool)}"

    @server.tool
    async def greet(city: str, name: Annotated[str, Ask("Who goes to {city}?")]) -> str:
        return f"{name} goes to {city}"

    @server.tool
    async def count(values: list[int], options: dict[str, Any] | None = None) -> int:
        return len(values)

    return server


async def asked(end: BareEnd, tool: str = "buy", **arguments: Any) -> dict[str, Any]:
    result = await end.ask("tools/call", {"name": tool, "arguments": arguments or {"item": "tea"}})
    assert result["resultType"] == "input_required"
    return result


def answered(question: dict[str, Any], tool: str = "buy", item: str = "tea", **changes: Any) -> dict[str, Any]:
    """The call again, with the user's yes; `changes` are other params."""
    answer = {"action": "accept", "content": {"value": True}}
    return {
        "name": tool,
        "arguments": {"item": item},
        "inputResponses": dict.fromkeys(question["inputRequests"], answer),
        "requestState": question["requestState"],
        **changes,
    }


# ---------------------------------------------------------------- states


def altered(state: str) -> str:
    middle = len(state) // 2
    return state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]


@pytest.mark.parametrize(
    "forge",
    [
        altered,
        lambda state: state[:-4],
        lambda state: state + "AAAA",
        lambda state: "",
        lambda state: "not a state",
        lambda state: "é" * 40,
        lambda state: base64.b64encode(bytes(400)).decode(),
        lambda state: "A" * 100_000,
    ],
    ids=["altered", "cut", "longer", "empty", "words", "no base64", "zeros", "huge"],
)
async def test_a_forged_state_is_refused(forge: Any) -> None:
    """MRTR-11."""
    async with BareEnd(shop(), capabilities=CAN_BE_ASKED) as end:
        question = await asked(end)
        error = await end.refusal("tools/call", answered(question, requestState=forge(question["requestState"])))
        assert error["code"] == -32602
        assert error["message"].startswith("Invalid requestState: ")
        assert await end.text_of(answered(question)) == "bought tea, 1 in all"


async def test_a_state_of_another_server_is_refused() -> None:
    """MRTR-11: unless both were given the same keys."""
    keys = [b"k" * 32]
    async with BareEnd(shop(), capabilities=CAN_BE_ASKED) as one, BareEnd(shop(), capabilities=CAN_BE_ASKED) as other:
        error = await other.refusal("tools/call", answered(await asked(one)))
        assert error["message"].startswith("Invalid requestState: ")
    async with (
        BareEnd(shop(state_keys=keys), capabilities=CAN_BE_ASKED) as one,
        BareEnd(shop(state_keys=keys), capabilities=CAN_BE_ASKED) as other,
    ):
        assert await other.text_of(answered(await asked(one))) == "bought tea, 1 in all"


@pytest.mark.parametrize("changes", [{"name": "give"}, {"arguments": {"item": "gold"}}, {"arguments": {}}])
async def test_a_state_goes_on_with_its_own_request_only(changes: dict[str, Any]) -> None:
    """MRTR-12: the answer to one question must not buy something else."""
    async with BareEnd(shop(), capabilities=CAN_BE_ASKED) as end:
        reply = await end.reply("tools/call", answered(await asked(end), **changes))
        if changes.get("arguments") == {}:
            assert reply["result"]["isError"] is True
        else:
            assert reply["error"]["message"] == "Invalid requestState: it belongs to another request"


async def test_a_state_is_replayed_only_where_that_is_allowed() -> None:
    """MRTR-13."""
    async with BareEnd(shop(), capabilities=CAN_BE_ASKED) as end:
        again = answered(await asked(end))
        assert [await end.text_of(again), await end.text_of(again)] == ["bought tea, 1 in all", "bought tea, 2 in all"]
    async with BareEnd(shop(state_once=True), capabilities=CAN_BE_ASKED) as end:
        again = answered(await asked(end))
        assert await end.text_of(again) == "bought tea, 1 in all"
        error = await end.refusal("tools/call", again)
        assert (error["code"], error["message"]) == (-32602, "Invalid requestState: it was used already")
        stateless = {key: value for key, value in again.items() if key != "requestState"}
        assert (await end.ask("tools/call", stateless))["resultType"] == "input_required"


async def test_a_state_expires() -> None:
    """MRTR-12."""
    async with BareEnd(shop(limits=Limits(state_ttl=0.0)), capabilities=CAN_BE_ASKED) as end:
        error = await end.refusal("tools/call", answered(await asked(end)))
        assert error["message"] == "Invalid requestState: it has expired, start the call again"


# ---------------------------------------------------------------- answers


async def test_answers_to_questions_that_were_never_asked_are_ignored() -> None:
    """MRTR-16: the open question is asked again."""
    stray = {"elicitation-0": {"action": "accept", "content": {"value": True}}, "x" * 10_000: {"roots": []}}
    async with BareEnd(shop(), capabilities=CAN_BE_ASKED) as end:
        question = await asked(end)
        again = await end.ask("tools/call", answered(question, inputResponses=stray))
        assert again["inputRequests"] == question["inputRequests"]
        assert await end.text_of(answered(again)) == "bought tea, 1 in all"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (7, "is not a valid answer"),
        ({"action": "perhaps"}, "is not a valid answer"),
        ({"content": {"value": True}}, "is not a valid answer"),
        ({"action": "accept", "content": {"value": "yes"}}, "value: expected boolean"),
        ({"action": "accept", "content": {}}, "value: missing"),
        ({"action": "accept"}, "value: missing"),
        ({"model": "m", "role": "user", "content": {"type": "text", "text": "x"}}, "is not a valid answer"),
    ],
)
async def test_an_answer_that_is_none_is_the_clients_error(answer: Any, words: str) -> None:
    """MRTR-15."""
    async with BareEnd(shop(), capabilities=CAN_BE_ASKED) as end:
        question = await asked(end)
        error = await end.refusal(
            "tools/call", answered(question, inputResponses=dict.fromkeys(question["inputRequests"], answer))
        )
        assert error["code"] == -32602
        assert words in error["message"]
        assert await end.text_of(answered(question)) == "bought tea, 1 in all"


@pytest.mark.parametrize("responses", [[], "x", 5, True])
async def test_answers_that_are_no_object_are_the_clients_error(responses: Any) -> None:
    async with BareEnd(shop(), capabilities=CAN_BE_ASKED) as end:
        error = await end.refusal("tools/call", answered(await asked(end), inputResponses=responses))
        assert error["code"] == -32602


async def test_a_response_to_a_request_that_was_never_made_is_dropped() -> None:
    """In the handshake era by the session, in the stateless era by the envelope."""
    async with BareEnd(shop(), "2025") as end:
        assert end.feed({"jsonrpc": "2.0", "id": 99, "result": {"action": "accept"}}) is None
        assert await end.names()
    async with BareEnd(shop()) as end:
        got = end.feed({"jsonrpc": "2.0", "id": 99, "result": {"action": "accept"}})
        assert got is None or isinstance(got, Outgoing)
        assert await end.names()


# ---------------------------------------------------------------- words that might be read as something else


async def test_an_argument_in_a_question_is_never_a_template() -> None:
    """What a model writes is shown as it is: braces are not filled again, and reach nothing of Python."""
    async with BareEnd(shop(), capabilities=CAN_BE_ASKED) as end:
        for city in ("{name}", "{city.__class__}", "{0}", "%s{", "}{"):
            question = await asked(end, "greet", city=city)
            (request,) = question["inputRequests"].values()
            assert request["params"]["message"] == f"Who goes to {city}?"


ESCAPES = [
    "../secret",
    "..%2fsecret",
    "%2e%2e/secret",
    "%2e%2e%2fsecret",
    "..%5csecret",
    "%252e%252e%252fsecret",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "a%00.md",
    "C:%5csecret",
    "sub/../../secret",
    "link",
]


@both_eras
@pytest.mark.parametrize("path", ESCAPES)
async def test_a_uri_leads_out_of_nothing(path: str, era: Era, tmp_path: Path) -> None:
    """RES-09: neither out of a folder nor out of a template's variable; each is simply not there."""
    (tmp_path / "secret").write_text("the password is 1234")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("fine")
    (tmp_path / "docs" / "link").symlink_to(tmp_path / "secret")
    server: Server[Any] = Server("files")
    server.add_files(tmp_path / "docs", "docs:///")

    @server.resource("note://{+name}")
    def note(name: str) -> str:
        return f"note {name}"

    async with BareEnd(server, era) as end:
        missing = -32002 if era == "2025" else -32602
        error = await end.refusal("resources/read", {"uri": f"docs:///{path}"})
        assert (error["code"], error["message"]) == (missing, "Resource not found")
        if path not in ("link", "%252e%252e%252fsecret"):
            assert (await end.refusal("resources/read", {"uri": f"note://{path}"}))["code"] == missing
        assert (await end.ask("resources/read", {"uri": "docs:///a.md"}))["contents"][0]["text"] == "fine"


@both_eras
@pytest.mark.parametrize("uri", ["", "x", "://", "a b:c", "x:\x00", "file:///\n", "x:" + "a" * 70_000])
async def test_a_uri_that_is_none_is_an_error(uri: str, era: Era) -> None:
    """RES-09."""
    server: Server[Any] = Server("files")

    @server.resource("x://{+rest}")
    def of(rest: str) -> str:
        return rest

    async with BareEnd(server, era) as end:
        error = await end.refusal("resources/read", {"uri": uri})
        assert error["code"] in (-32602, -32002)
        assert len(msgspec.json.encode(error)) < 3000


# ---------------------------------------------------------------- much and deep


@both_eras
async def test_huge_and_deep_arguments_are_refused_or_served_and_never_echoed(era: Era) -> None:
    deep: Any = None
    for _ in range(500):
        deep = [deep]
    async with BareEnd(shop(), era) as end:
        assert await end.text("count", values=list(range(100_000))) == "100000"
        assert await end.text("count", values=[], options={"deep": deep}) == "0"
        for wrong in (
            {"values": ["x" * 100_000]},
            {"values": deep},
            {"values": [2**70, 1.5]},
            {"x" * 100_000: 1, "values": []},
            {f"x{number}": 1 for number in range(10_000)},
        ):
            result = await end.call_tool("count", **wrong)
            assert result["isError"] is True
            assert len(result["content"][0]["text"]) < 20_000


async def test_a_body_over_the_limit_is_refused_while_it_is_read() -> None:
    async with serving(shop(limits=Limits(body=10_000))) as site:
        headers, body = modern("tools/call", {"name": "count", "arguments": {"values": [1] * 10_000}})
        assert (await site.ask({**headers, "Mcp-Name": "count"}, body)).status == 413
        headers, body = modern("tools/call", {"name": "count", "arguments": {"values": [1]}})
        assert (await site.ask({**headers, "Mcp-Name": "count"}, body)).status == 200


@both_eras
async def test_json_without_a_bottom_is_one_error(era: Era) -> None:
    async with BareEnd(shop(), era) as end:
        bottomless = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
        got = end.session.receive(bottomless, end.origin)
        assert isinstance(got, Outgoing)
        assert got.error is not None
        assert got.error.code in (-32700, -32600, -32602)
        assert await end.text("count", values=[1]) == "1"


# ---------------------------------------------------------------- watching


@both_eras
async def test_a_resource_that_may_not_be_watched_is_not(era: Era) -> None:
    """SUB-04: refused where there is a refusal to give, left out where there is none."""
    server: Server[Any] = Server("watch", authorize_subscription=lambda ctx, uri: "secret" not in uri)

    @server.resource("x://{name}")
    def of(name: str) -> str:
        return name

    async with BareEnd(server, era) as end:
        if era == "2025":
            error = await end.refusal("resources/subscribe", {"uri": "x://secret"})
            assert (error["code"], error["message"]) == (-32602, "This resource can't be subscribed to")
            await end.ask("resources/subscribe", {"uri": "x://open"})
        else:
            await end.listen("resourceSubscriptions", ["x://secret", "x://open"])
            acknowledged = await end.wait_for("notifications/subscriptions/acknowledged")
            assert acknowledged["notifications"] == {"resourceSubscriptions": ["x://open"]}
