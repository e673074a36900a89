"""Coercion: strings that hold JSON of the expected type, in every kind of annotation; what fits stays as it is."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import Client, DefinitionError, InvalidArguments, Server, ToolChange
from gemel.server.composition.transform import ArgumentChange
from gemel.server.functions.arguments import Arguments
from gemel.server.functions.coercion import MAX_BYTES, MAX_VISITS, CoercedArguments, coerce
from gemel.server.functions.signature import Signature, inspect_function
from tests.server.bare_end import BareEnd


@dataclass
class Point:
    x: int
    y: float = 0.0


class Model(pydantic.BaseModel):
    n: int
    tags: list[str] = []


class Options(TypedDict):
    a: int
    b: NotRequired[bool]


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    bones: list[int]


class Tree(msgspec.Struct):
    value: int | list[Tree] | dict[str, Tree] | None = None


def signature_of(annotation: Any) -> Signature:
    """The signature of a function with one argument of this annotation."""

    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": annotation, "return": None}
    return inspect_function(function)


def reads(annotation: Any) -> Callable[[Any], Any]:
    """A function that reads one argument of this annotation."""
    signature = signature_of(annotation)
    arguments = CoercedArguments(signature.arguments, signature.input_schema)
    return lambda value: arguments.from_json(msgspec.json.encode({"value": value}))["value"]


@pytest.mark.parametrize(
    ("annotation", "sent", "value"),
    [
        (int, "3", 3),
        (int, " -3 ", -3),
        (int, "3.0", 3),
        (int, "12345678901234567890123", 12345678901234567890123),
        (float, "1e3", 1000.0),
        (bool, "true", True),
        (bool, "False", False),
        (int | None, "null", None),
        (int | None, "4", 4),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], '["1", 2]', [1, 2]),
        (list[int], ["1", 2], [1, 2]),
        (tuple[int, str], '[1, "1"]', (1, "1")),
        (dict[str, int], '{"a": "1"}', {"a": 1}),
        (dict[str, list[int]], {"a": "[1]"}, {"a": [1]}),
        (Point, '{"x": "1"}', Point(1)),
        (Point, {"x": "1", "y": "2.5"}, Point(1, 2.5)),
        (list[Point], ['{"x": 1}'], [Point(1)]),
        (Point | None, {"x": "1"}, Point(1)),
        (Model, '{"n": "5", "tags": "[\\"q\\"]"}', Model(n=5, tags=["q"])),
        (Model | None, {"n": "5"}, Model(n=5)),
        (Options, {"a": "1", "b": "false"}, {"a": 1, "b": False}),
        (Cat | Dog, '{"type": "dog", "bones": ["1"]}', Dog([1])),
        (Cat | Dog, {"type": "cat", "lives": "9"}, Cat(9)),
        (Tree, {"value": '[{"value": "7"}]'}, Tree([Tree(7)])),
        (Literal[1, 2, "a"], "2", 2),
    ],
)
def test_a_string_becomes_the_value_that_it_holds(annotation: Any, sent: Any, value: Any) -> None:
    read = reads(annotation)(sent)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("annotation", "sent"),
    [
        (str, "3"),
        (Any, "3"),
        (object, "[1]"),
        (int | str, "3"),
        (str | None, "null"),
        (str | list[int], "[1]"),
        (list[int] | list[str], ["1", "2"]),
        (Literal["1", 1], "1"),
        (dict[str, Any], {"a": "1"}),
        (list[str], ["1", "null"]),
    ],
)
def test_what_fits_stays_as_it_is(annotation: Any, sent: Any) -> None:
    assert reads(annotation)(sent) == sent


def test_what_fits_stays_beside_what_is_coerced() -> None:
    def function(number: int, text: str, either: int | str, both: list[int | str], anything: Any) -> None: ...

    signature = inspect_function(function)
    sent = {"number": "1", "text": "1", "either": "1", "both": ["1", 1], "anything": ["1"]}
    read = CoercedArguments(signature.arguments, signature.input_schema).from_json(json.dumps(sent).encode())
    assert read == {**sent, "number": 1}


@pytest.mark.parametrize(
    ("annotation", "sent"),
    [
        (int, "007"),
        (int, "3.5"),
        (int, "1e30"),
        (int, "soon"),
        (int, ""),
        (int, True),
        (int, "true"),
        (int, '"3"'),
        (float, "NaN"),
        (float, "1e999"),
        (bool, 1),
        (bool, "1"),
        (bool, "yes"),
        (str, 3),
        (str, ["a"]),
        (list[int], "1"),
        (list[int], "[1"),
        (list[int], "1, 2"),
        (Point, "x=1"),
        (Literal[1, 2], "3"),
        (int, "9" * 100_000),
        (int, "٣"),
    ],
)
def test_nothing_else_is_coerced(annotation: Any, sent: Any) -> None:
    with pytest.raises(InvalidArguments):
        reads(annotation)(sent)


def test_an_error_lists_what_is_wrong_after_coercion() -> None:
    with pytest.raises(InvalidArguments) as caught:
        reads(Point | None)({"x": "1", "y": "b"})
    assert caught.value.errors == ['value.y: expected number, got string "b"']


SCHEMA = {
    "type": "object",
    "definitions": {"size": {"type": ["integer", "null"]}},
    "properties": {"size": {"$ref": "#/definitions/size"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": {"type": "integer"},
}


def test_an_input_schema_of_the_author_s() -> None:
    def coerced(sent: Any) -> Any:
        text = coerce(SCHEMA, json.dumps(sent).encode())
        return None if text is None else json.loads(text)

    assert coerced({"size": "3", "tags": '["1"]'}) == {"size": 3, "tags": ["1"]}
    assert coerced({"size": 3, "tags": ["1"], "x-a": "1"}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | inner.map(json.dumps),
)


SIGNATURES = [signature_of(annotation) for annotation in (str, int, Any, int | str, list[str] | bool, Tree)]
READERS = [reads(annotation) for annotation in (int, Tree, Point | list[int] | bool, Model, dict[str, Cat | Dog])]


@given(JSON)
def test_any_input_is_read_or_refused(sent: Any) -> None:
    for read in READERS:
        with contextlib.suppress(InvalidArguments):
            read(sent)


@given(JSON)
def test_what_is_read_strictly_is_not_coerced(sent: Any) -> None:
    """Coercion begins where strict reading fails."""

    strict = Arguments.from_json
    for signature in SIGNATURES:
        text = msgspec.json.encode({"value": sent})
        try:
            read = strict(signature.arguments, text)
        except InvalidArguments:
            continue
        assert repr(CoercedArguments(signature.arguments, signature.input_schema).from_json(text)) == repr(read)


# ---------------------------------------------------------------- bounded work


def lines_run(function: Callable[[], Any]) -> int:
    """How many lines of Python a call runs."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def tree_of(depth: int, width: int) -> Any:
    return {"value": [tree_of(depth - 1, width) for _ in range(width)]} if depth else {"value": "zz"}


@pytest.mark.parametrize(
    "sent",
    [
        {"value": ["1"] * 200_000},
        {"value": json.dumps(["1"] * 100_000)},
        tree_of(12, 2),
        tree_of(200, 1),
        {"value": [json.dumps(["zz"])] * 20_000},
    ],
)
def test_work_is_bounded(sent: Any) -> None:
    def function(value: int | list[int | Tree] | Tree) -> None: ...

    schema, text = inspect_function(function).input_schema, json.dumps({"value": sent}).encode()
    assert lines_run(lambda: coerce(schema, text)) < 150 * MAX_VISITS


def test_large_arguments_are_read_strictly() -> None:
    read = reads(list[int])
    assert read("[" + "1," * 50_000 + "1]") == [1] * 50_001
    with pytest.raises(InvalidArguments):
        read("[" + "1," * (MAX_BYTES // 2) + "1]")


# ---------------------------------------------------------------- tools


async def answer(server: Server[Any], name: str, arguments: dict[str, Any], era: Literal["2025", "2026"]) -> str:
    async with Client(server, era=era) as client:
        return (await client.call_tool(name, arguments, raise_on_error=False)).text


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_option_of_the_server_and_of_the_tool(era: Literal["2025", "2026"]) -> None:
    server: Server[Any] = Server("lax", coerce=True)

    @server.tool
    async def lax(days: int) -> str:
        return repr(days)

    @server.tool(coerce=False)
    async def strict(days: int) -> str:
        return repr(days)

    assert await answer(server, "lax", {"days": "3"}, era) == "3"
    assert "expected integer" in await answer(server, "strict", {"days": "3"}, era)

    other: Server[Any] = Server("strict")

    @other.tool(coerce=True, input_schema={"type": "object", "properties": {"days": {"type": "integer"}}})
    async def free(arguments: dict[str, Any]) -> str:
        return repr(arguments)

    other.mount(server, "inner")
    other.include(server, "copied")
    assert await answer(other, "free", {"days": "3"}, era) == "{'days': 3}"
    assert await answer(other, "inner_lax", {"days": "3"}, era) == "3"
    assert await answer(other, "copied_lax", {"days": "3"}, era) == "3"
    assert "expected integer" in await answer(other, "copied_strict", {"days": "3"}, era)


async def test_the_listed_schema_is_the_same() -> None:
    listed = []
    for coerced in (False, True):
        server: Server[Any] = Server("lax", coerce=coerced)
        server.tool(pick)
        async with Client(server) as client:
            listed.append((await client.list_tools())[0])
    assert listed[0] == listed[1]


async def pick(points: list[Point], pet: Cat | Dog, model: Model | None = None) -> str:
    """Pick."""
    return ""


async def test_a_mounted_tool_reports_outer_names() -> None:
    inner: Server[Any] = Server("inner", coerce=True)

    @inner.tool
    async def add(a: int, b: int) -> int:
        return a + b

    outer: Server[Any] = Server("outer")
    changes = {
        "add": ToolChange(name="plus", arguments={"a": ArgumentChange(name="first"), "b": ArgumentChange(value=2)})
    }
    outer.mount(inner, tools=changes)
    assert await answer(outer, "plus", {"first": "1"}, "2026") == "3"
    assert await answer(outer, "plus", {"first": "one"}, "2026") == (
        "Invalid arguments for tool 'plus': first: expected integer, got string \"one\""
    )


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_string_in_place_of_all_arguments_does_not_replace_a_fixed_one(era: Literal["2025", "2026"]) -> None:
    inner: Server[Any] = Server("inner", coerce=True)

    @inner.tool
    async def read(path: str, user: str) -> str:
        return user

    outer: Server[Any] = Server("outer")
    outer.mount(inner, tools={"read": ToolChange(arguments={"user": ArgumentChange(value="guest")})})
    async with BareEnd(outer, era) as end:
        assert (await end.call_tool("read", path="x"))["content"][0]["text"] == "guest"
        error = await end.refusal("tools/call", {"name": "read", "arguments": '{"path": "x", "user": "root"}'})
        assert "expected object" in error["message"]


def test_a_value_that_is_no_flag() -> None:
    server: Server[Any] = Server("lax")
    for define in (lambda: Server("x", coerce="yes"), lambda: server.tool(coerce="yes")(pick)):  # type: ignore[arg-type, call-overload]  # the mistake
        with pytest.raises(DefinitionError, match="coerce='yes' is not possible: use True or False"):
            define()
