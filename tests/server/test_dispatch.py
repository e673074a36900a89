"""From a method's name to its handler and back: the order of the checks, and what becomes of what a handler returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field

from gemel import Context, ErrorObject, Overloaded, Server, ToolError
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Search(msgspec.Struct, rename="camel"):
    first_words: str
    limit: int = 10


@dataclass
class Plain:
    words: str


class Typed(TypedDict):
    words: str


class Model(BaseModel):
    first_words: str = Field(alias="firstWords")


def serving(kind: Any, returned: Any = None) -> tuple[Server[Any], list[Any]]:
    """A server with one method, and what its handler got."""
    server: Server[Any] = Server("own")
    got: list[Any] = []

    @server.request("acme/search", params=kind)
    async def search(ctx: Context, params: Any) -> Any:
        got.append(params)
        if isinstance(returned, Exception):
            raise returned
        return returned

    return server, got


@both_eras
@pytest.mark.parametrize(
    ("kind", "sent", "value"),
    [
        (Search, {"firstWords": "a"}, Search("a")),
        (Plain, {"words": "a"}, Plain("a")),
        (Typed, {"words": "a"}, {"words": "a"}),
        (Model, {"firstWords": "a"}, Model(firstWords="a")),
    ],
)
async def test_params_arrive_as_their_type_by_their_names_on_the_wire(
    kind: Any, sent: Any, value: Any, era: Era
) -> None:
    server, got = serving(kind)
    async with BareEnd(server, era) as end:
        await end.ask("acme/search", sent)
        assert got[0] == value or {key: got[0][key] for key in value} == value
        error = await end.refusal("acme/search")
        assert (error["code"], error["message"]) == (-32602, "Invalid request parameters")
        error = await end.refusal("acme/search", {"first_words": 5, "words": 5, "firstWords": 5, "secret": "canary"})
        assert error["code"] == -32602
        assert "canary" not in str(error)


@both_eras
@pytest.mark.parametrize("config", [{"populate_by_name": True}, {"validate_by_name": True, "validate_by_alias": False}])
async def test_names_of_python_are_no_names_on_the_wire(config: dict[str, Any], era: Era) -> None:
    """Also where a model takes them in Python."""

    class Named(BaseModel):
        model_config = ConfigDict(**config)  # type: ignore[typeddict-item]  # any config

        first_words: str = Field(alias="firstWords")

    server, got = serving(Named)
    async with BareEnd(server, era) as end:
        await end.ask("acme/search", {"firstWords": "a"})
        error = await end.refusal("acme/search", {"first_words": "b"})
    assert [one.first_words for one in got] == ["a"]
    assert (error["code"], error["message"]) == (-32602, "Invalid request parameters")


@both_eras
@pytest.mark.parametrize(
    ("returned", "result"),
    [
        (None, {}),
        ({"a": 1}, {"a": 1}),
        (Search("a", 1), {"firstWords": "a", "limit": 1}),
        (Model(firstWords="a"), {"firstWords": "a"}),
    ],
)
async def test_a_result_may_be_nothing_a_dict_a_struct_or_a_model(returned: Any, result: Any, era: Era) -> None:
    server, _ = serving(dict[str, Any], returned)
    async with BareEnd(server, era) as end:
        found = await end.ask("acme/search")
        assert {key: value for key, value in found.items() if key not in ("_meta", "resultType")} == result


@both_eras
@pytest.mark.parametrize("returned", [5, "text", [1], object(), ("a",)])
async def test_anything_else_is_the_servers_fault(returned: Any, era: Era, caplog: pytest.LogCaptureFixture) -> None:
    server, _ = serving(dict[str, Any], returned)
    async with BareEnd(server, era) as end:
        error = await end.refusal("acme/search")
        assert error == {"code": -32603, "message": "Handler returned an invalid result"}
    assert "return a result type, a dict, or None" in caplog.text


@both_eras
async def test_an_error_may_be_returned_raised_or_told_in_words(era: Era) -> None:
    for outcome, error in (
        (ErrorObject(7, "no", {"a": 1}), {"code": 7, "message": "no", "data": {"a": 1}}),
        (ToolError("in words"), {"code": -32603, "message": "in words"}),
        (RuntimeError("secret"), {"code": -32603, "message": "Internal server error"}),
    ):
        server, _ = serving(dict[str, Any], outcome)
        async with BareEnd(server, era) as end:
            assert await end.refusal("acme/search") == error


@both_eras
async def test_a_method_of_the_protocol_can_be_taken_over_and_its_result_is_checked(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    server: Server[Any] = Server("own")
    tools: list[Any] = [{"name": "own", "inputSchema": {"type": "object"}}]

    @server.request("tools/list")
    async def listed(ctx: Context, params: Any) -> Any:
        return {"tools": tools}

    async with BareEnd(server, era) as end:
        assert await end.names() == ["own"]
        tools[0] = {"name": 5}
        error = await end.refusal("tools/list")
        assert error == {"code": -32603, "message": "Handler returned an invalid result"}
    assert "tools/list: the handler's result does not fit the protocol" in caplog.text


@both_eras
async def test_what_is_not_served_is_unknown_and_malformed_params_come_first(era: Era) -> None:
    async with BareEnd(Server("own"), era) as end:
        for method in ("acme/search", "completion/complete"):
            params = {"name": "x", "ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}
            error = await end.refusal(method, params)
            assert error == {"code": -32601, "message": "Method not found", "data": method}
        error = await end.refusal("completion/complete", {"ref": 5})
        assert error["code"] == -32602


@both_eras
async def test_too_much_at_once_says_when_to_come_back(era: Era) -> None:
    server, _ = serving(dict[str, Any], Overloaded("The archive is full", 7000))
    async with BareEnd(server, era) as end:
        error = await end.refusal("acme/search")
        assert error == {"code": 429, "message": "The archive is full", "data": {"retryAfterMs": 7000}}
