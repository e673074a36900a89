"""Messages with too many values are rejected before they are decoded."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from gemel import Limits, Server
from gemel.errors import InvalidParams
from gemel.protocol.decoding import check_values, collector_paused
from tests.server.bare_end import BareEnd

LIMIT = 1000


def accepted(text: str, limit: int = LIMIT) -> bool:
    """Whether JSON text is accepted; it has to be JSON."""
    msgspec.json.decode(text)
    try:
        check_values(text.encode(), limit)
    except InvalidParams:
        return False
    return True


def items(item: str, number: int) -> str:
    return f"[{','.join([item] * number)}]"


def members(value: str, number: int) -> str:
    return "{" + ",".join(f'"{n}":{value}' for n in range(number)) + "}"


#: What one array or object with so many of them counts.
COUNTED = {
    "integers": (items("1", 1000), items("1", 1001)),
    "strings": (items('""', 1000), items('""', 1001)),
    "arrays": (items("[]", 500), items("[]", 501)),
    "objects": (items("{}", 500), items("{}", 501)),
    "arrays in arrays": ("[" * 500 + "]" * 500, None),
    "members": (members("1", 500), members("1", 501)),
    "members with text": (members('"a,b:c"', 500), members('"a,b:c"', 501)),
    "members of objects": (items('{"a":1}', 333), items('{"a":1}', 334)),
    "blanks": (items(" \n 1 \t", 1000), items(" \n 1 \t", 1001)),
    "exponents": (items("1e-99", 1000), items("1e-99", 1001)),
    "long exponents": (items("1e308", 4), items("1e308", 5)),
    "exponents with a sign": (items("1.5E-300", 4), items("1.5E+300", 5)),
    "padded exponents": (items("1e-0005", 4), items("1e-0005", 5)),
    "long integers": (items("9" * 160, 47), items("9" * 160, 48)),
    "long fractions": (items("0." + "0" * 158, 47), items("0." + "0" * 158, 48)),
}


@pytest.mark.parametrize("shape", COUNTED)
def test_values_are_counted(shape: str) -> None:
    most, more = COUNTED[shape]
    assert accepted(most)
    assert more is None or not accepted(more)


#: One string each, which is one value.
STRINGS = {
    "commas": ",[{:" * LIMIT,
    "digits": "0123456789" * LIMIT,
    "exponents": "1e308 1e-308 " * LIMIT,
    "quotes": '","' * LIMIT,
    "backslashes": '\\","\\' * LIMIT,
    "JSON": msgspec.json.encode({"a": ["b\\", '"', {"c": 1.5}] * LIMIT}).decode(),
    "other letters": "ä,é\n\u2028" * LIMIT,
}


@pytest.mark.parametrize("shape", STRINGS)
def test_the_text_of_strings_is_not_counted(shape: str) -> None:
    string = msgspec.json.encode(STRINGS[shape]).decode()
    assert accepted(f'{{"text":{string}}}')
    assert accepted(f'{{"text":{string},"more":{items("1", 990)}}}')
    assert not accepted(f'{{"text":{string},"more":{items("1", 1000)}}}')


@pytest.mark.parametrize("piece", ['0e\\"000', "0e\\\\000", '0\\"0', '000000000000000\\"0', "\\u0030e000", '",'])
def test_no_text_makes_room_for_values(piece: str) -> None:
    """What a string adds to the count is what is subtracted for it."""
    escaped = piece if piece != '",' else '\\",'
    assert not accepted(f'["{escaped * 5000}",{items("1", 1000)}]')


def takes_all() -> Server[Any]:
    """A server with a tool of each kind of argument."""
    server: Server[Any] = Server("large")

    @server.tool
    def rows(rows: list[dict[str, Any]], text: str = "") -> int:
        return len(rows) + len(text)

    @server.tool(input_schema={"type": "object"})
    def own(arguments: dict[str, Any]) -> int:
        return len(arguments)

    @server.prompt
    def ask(numbers: list[float]) -> str:
        return str(len(numbers))

    return server


async def test_large_arguments_are_served() -> None:
    row = {"a": 1, "b": "two", "c": 3.5, "d": None, "e": True, "f": "six", "g": 7, "h": 8, "i": "nine"}
    async with BareEnd(takes_all(), "2026") as end:
        assert await end.text("rows", rows=[row] * 10_000) == "10000"
        assert await end.text("rows", rows=[], text=",[{" * 1_000_000) == "3000000"


TOO_MANY: dict[str, tuple[str, dict[str, Any]]] = {
    "typed": ("tools/call", {"name": "rows", "arguments": {"rows": [{}] * 150_000}}),
    "wrong": ("tools/call", {"name": "rows", "arguments": {"wrong": [[]] * 150_000}}),
    "by schema": ("tools/call", {"name": "own", "arguments": {"a": [[]] * 150_000}}),
    "a prompt": ("prompts/get", {"name": "ask", "arguments": {f"a{n}": "" for n in range(100_000)}}),
    "JSON in a text": ("prompts/get", {"name": "ask", "arguments": {"numbers": "[" + "1e308," * 1000 + "1]"}}),
    "unknown members": ("tools/list", {"cursor": None, "more": [1] * 200_000}),
}


@pytest.mark.parametrize("case", TOO_MANY)
async def test_too_many_values_are_refused_without_being_decoded(case: str) -> None:
    """The answer is short, and neither while it is made nor afterwards is there memory for the values."""
    method, params = TOO_MANY[case]
    size = len(msgspec.json.encode(params))
    async with BareEnd(takes_all(), "2026") as end:
        await end.refusal(method, params)
        tracemalloc.start()
        try:
            error = await end.refusal(method, params)
            kept, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert error["code"] == -32602
    assert error["message"].startswith("Too many values: at most 200,000 ")
    assert len(msgspec.json.encode(error)) < 200
    assert most < 12 * size + 200_000
    assert kept < 100_000


async def test_the_number_of_values_is_a_setting() -> None:
    server: Server[Any] = Server("small", limits=Limits(values=2000))

    @server.tool
    def count(values: list[int]) -> int:
        return len(values)

    async with BareEnd(server, "2025") as end:
        assert await end.text("count", values=[1000] * 1900) == "1900"
        assert (
            "at most 2,000 "
            in (await end.refusal("tools/call", {"name": "count", "arguments": {"values": [1000] * 2001}}))["message"]
        )


async def test_arguments_that_pydantic_reads_count_twice() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", number=(int, ...))
    server: Server[Any] = Server("models", limits=Limits(values=20_000))

    def count(models: list[Any]) -> int:
        return len(models)

    count.__annotations__["models"] = list[model]  # type: ignore[valid-type]  # made at runtime
    server.tool(count)
    async with BareEnd(server, "2026") as end:
        assert await end.text("count", models=[{"number": 1}] * 3000) == "3000"
        refused = await end.refusal("tools/call", {"name": "count", "arguments": {"models": [{"number": 1}] * 3400}})
        assert "at most 10,000 " in refused["message"]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_pauses_and_is_then_as_before(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
