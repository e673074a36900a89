"""Any signature is registered and works, or is refused by a DefinitionError that names function, line and parameter.

Annotations are made at random of types, values in place of types, typing forms, metadata and markers.
"""

import asyncio
import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import logging
import pathlib
import typing
import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemel import Ask, Context, DefinitionError, Depends, Principal, Server
from gemel.server.context import SyncContext
from gemel.server.functions.annotations import shown
from tests.fuzz.ends import examples
from tests.server.bare_end import BareEnd


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Nothing(enum.Enum):
    """An enum without a value."""


class Row(NamedTuple):
    x: int


class Total(typing.TypedDict, total=False):
    x: typing.Required[int]
    y: str


class Struct(msgspec.Struct):
    x: int = 1


class Model(pydantic.BaseModel):
    x: list[int] = []


class Marked(pydantic.BaseModel):
    x: Annotated[int, Depends(lambda: 1)]


class Unfinished(pydantic.BaseModel):
    x: "Later"  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class Data:
    x: int = 1
    context: Context | None = None


@dataclasses.dataclass
class Plain:
    x: datetime.date


class Broken:
    """Its methods fail."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class Hooked:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        raise LookupError("in the hook")


#: The same module for type checkers, which refuse what is tried here.
ANY: Any = typing
T = typing.TypeVar("T")
BoundT = typing.TypeVar("BoundT", bound=int)
OneT = typing.TypeVar("OneT", int, str)
P = ANY.ParamSpec("P")
Meters = ANY.NewType("Meters", float)

MARKERS: list[Any] = [Depends(lambda: 1), Ask("Which one?"), Depends, Ask]
FILLED: list[Any] = [Data, Marked, Context, Context[int], SyncContext, Principal, Server]

TYPES: list[Any] = [
    int,
    str,
    float,
    bool,
    bytes,
    None,
    list,
    dict,
    tuple,
    set,
    complex,
    object,
    type,
    range,
    slice,
    Exception,
]
TYPES += [datetime.date, datetime.datetime, datetime.timedelta, decimal.Decimal, uuid.UUID, pathlib.Path, memoryview]
TYPES += [Color, Level, Nothing, Row, Total, Struct, Model, Plain, Unfinished, Hooked, Broken]
TYPES += [
    pydantic.PastDate,
    pydantic.SecretStr,
    pydantic.HttpUrl,
    pydantic.PositiveInt,
    pydantic.Json,
    pydantic.BaseModel,
]
TYPES += [
    msgspec.Raw,
    msgspec.UNSET,
    msgspec.UnsetType,
    msgspec.Struct,
    collections.Counter,
    collections.abc.Iterable,
    enum.Enum,
]
FORMS: list[Any] = [
    Any,
    typing.Never,
    typing.Self,
    typing.LiteralString,
    typing.Hashable,
    typing.Sized,
    typing.Pattern,
    typing.IO,
]
FORMS += [
    T,
    BoundT,
    OneT,
    P,
    P.args,
    Meters,
    typing.Generic,
    typing.Protocol,
    typing.Final,
    typing.ClassVar,
    typing.Callable,
]
VALUES: list[Any] = [
    3,
    1.5,
    True,
    ...,
    [],
    [int],
    (int, str),
    {"x": int},
    {1},
    any,
    len,
    typing,
    datetime,
    object(),
    Broken(),
    lambda: 1,
]
TEXTS: list[Any] = [
    "int",
    "Later",
    "int |",
    "",
    "list[Later]",
    "Context | None",
    "1 / 0",
    "\n",
    "int[str]",
    "__import__('os')",
]
METADATA: list[Any] = ["text", 3, None, msgspec.Meta(ge=1), msgspec.Meta(min_length=1), msgspec.Meta(pattern="^(?=a)")]
METADATA += [
    pydantic.Field(ge=1),
    pydantic.Field(min_length=1),
    pydantic.Field(pattern="(?=a)"),
    pydantic.Field(pattern="("),
]
METADATA += [
    pydantic.Field(alias="y"),
    pydantic.Field(alias='"'),
    pydantic.Field(discriminator="kind"),
    pydantic.Field(default=1),
]
METADATA += [
    pydantic.Field(default_factory=lambda data: 1),
    pydantic.AfterValidator(len),
    pydantic.PlainSerializer(str),
    Broken(),
]
LITERALS: list[Any] = [1, "a", None, b"a", Color.RED, 1.5, True]
DEFAULTS: list[Any] = [
    None,
    1,
    "a",
    [],
    {},
    float("nan"),
    ...,
    Broken(),
    Color.RED,
    msgspec.UNSET,
    Model(),
    pydantic.SecretStr("x"),
]
DEFAULTS += [pydantic.Field(1), pydantic.Field(default_factory=list), len, int, object(), *MARKERS]


class Written:
    """An annotation, and whether a marker or something that only the server fills is in it."""

    def __init__(self, annotation: Any, *, marked: bool = False) -> None:
        self.annotation = annotation
        self.marked = marked

    def __repr__(self) -> str:
        return f"{shown(self.annotation)}{' (marked)' if self.marked else ''}"


def pick(items: Sequence[Any]) -> st.SearchStrategy[Any]:
    """One of them, which may have no usable `__eq__`, `__hash__` or `__repr__`."""
    return st.integers(0, len(items) - 1).map(lambda index: items[index])


def made(make: Callable[..., Any], *parts: Written, marked: bool = False) -> Written | None:
    """An annotation made of others; None if Python itself refuses it."""
    try:
        annotation = make(*(part.annotation for part in parts))
    except Exception:
        return None
    return Written(annotation, marked=marked or any(part.marked for part in parts))


leaves = (
    pick([*TYPES, *FORMS, *VALUES]).map(Written)
    | pick(FILLED).map(lambda one: Written(one, marked=True))
    | pick(TEXTS).map(lambda text: Written(text, marked="Context" in text))
    | pick(LITERALS).map(lambda value: Written(ANY.Literal[value]))
)
HOLE = object()
#: Generic forms and their arguments; another annotation stands in the hole.
GENERICS: list[tuple[Any, ...]] = [
    *(
        (generic, HOLE)
        for generic in (list, set, type, typing.Optional, typing.Iterable, typing.Awaitable, pydantic.Json)
    ),
    *(
        (generic, HOLE)
        for generic in (typing.Required, typing.Final, typing.ClassVar, typing.Unpack, dataclasses.InitVar)
    ),
    (tuple, HOLE, ...),
    (tuple, HOLE, int),
    (dict, str, HOLE),
    (dict, HOLE, int),
    (typing.Generator, HOLE, None, None),
    (Callable, [HOLE], int),
    (Callable, ..., HOLE),
]


def generic(form: tuple[Any, ...], part: Any) -> Any:
    arguments: tuple[Any, ...] = tuple(
        part if item is HOLE else [part] if item == [HOLE] else item for item in form[1:]
    )
    return form[0][arguments[0] if len(arguments) == 1 else arguments]


def extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.builds(lambda form, part: made(lambda x: generic(form, x), part), pick(GENERICS), inner)
        | inner.map(lambda part: made(lambda x: generic((Context, HOLE), x), part, marked=True))
        | inner.map(lambda part: made(lambda x: ANY.NewType("New", x), part))
        | st.builds(lambda left, right: made(lambda x, y: ANY.Union[x, y], left, right), inner, inner)
        | st.builds(lambda part, item: made(lambda x: ANY.Annotated[x, item], part), inner, pick(METADATA))
        | st.builds(
            lambda part, item: made(lambda x: ANY.Annotated[x, item], part, marked=True),
            inner,
            pick(MARKERS),
        )
    ).filter(lambda written: written is not None)


annotations = st.recursive(leaves, extended, max_leaves=4)
NO_DEFAULT = object()
#: Codes of answers to `Ask`, because the caller has no forms; others are failures of the protocol.
EXPECTED = (-32021,)


def function_of(written: Written, default: Any) -> Any:
    def function(x: Any) -> str:
        return "done"

    function.__defaults__ = () if default is NO_DEFAULT else (default,)
    function.__annotations__ = {"x": written.annotation, "return": str}
    return function


def register(server: Server[Any], function: Any, way: str) -> None:
    if way == "tool":
        server.tool(function)
    elif way == "prompt":
        server.prompt(function)
    elif way == "resource":
        server.resource("page://{x}")(function)
    elif way == "dependency":

        def dependent(got: Annotated[Any, Depends(function)]) -> str:
            return "done"

        dependent.__annotations__["got"] = Annotated[Any, Depends(function)]
        server.tool(dependent)
    else:

        @server.prompt
        def prompt(value: str) -> str:
            return value

        def complete(value: str, *, x: Any) -> list[str]:
            return []

        complete.__annotations__["x"] = function.__annotations__["x"]
        complete.__kwdefaults__ = dict(zip("x", function.__defaults__, strict=False))
        prompt.complete("value")(complete)


@pytest.mark.parametrize("way", ["tool", "prompt", "resource"])
@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(annotations)
def test_a_result_is_registered_or_refused_in_one_line(way: str, written: Written) -> None:
    server: Server[Any] = Server("random")

    def function() -> Any:
        return "done"

    function.__annotations__["return"] = written.annotation
    ways: dict[str, Any] = {"tool": server.tool, "prompt": server.prompt, "resource": server.resource("page://now")}
    register_result = ways[way]
    try:
        register_result(function)
    except DefinitionError as error:
        text = str(error)
        assert "\n" not in text
        assert text.startswith(f"function() at {__file__}:")
        assert "return" in text
        return
    logging.disable()
    try:
        asyncio.run(use(server, marked=False))
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("way", ["tool", "prompt", "resource", "dependency", "completion"])
@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(annotations, st.just(NO_DEFAULT) | pick(DEFAULTS))
def test_a_signature_is_registered_or_refused_in_one_line(way: str, written: Written, default: Any) -> None:
    server: Server[Any] = Server("random")
    function = function_of(written, default)
    try:
        register(server, function, way)
    except DefinitionError as error:
        text = str(error)
        assert "\n" not in text
        assert f" at {__file__}:" in text
        assert any(
            part in text for part in ("parameter `x`: ", "doesn't fit the URI", "takes `x`", "write `(value: str)`")
        )
        return
    logging.disable()
    try:
        asyncio.run(use(server, marked=written.marked))
    finally:
        logging.disable(logging.NOTSET)


async def use(server: Server[Any], *, marked: bool) -> None:
    """What was registered can be listed and called; what the server fills is not listed."""
    async with BareEnd(server) as end:
        for tool in (await end.ask("tools/list"))["tools"]:
            names = tool["inputSchema"].get("properties", {})
            assert not marked or not names
            for arguments in ({}, *(dict.fromkeys(names, value) for value in (1, "a", {"x": 1}))):
                reply = await end.reply("tools/call", {"name": tool["name"], "arguments": arguments})
                assert reply.get("error", {}).get("code") in (None, *EXPECTED), reply
        for prompt in (await end.ask("prompts/list"))["prompts"]:
            assert not marked or [argument["name"] for argument in prompt.get("arguments", ())] in ([], ["value"])
