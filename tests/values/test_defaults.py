"""Defaults: what a caller leaves out is there when the value is written, and what JSON can't say is not listed."""

from __future__ import annotations

import enum
import math
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Generic, TypeVar

import attrs
import msgspec
import pydantic
import pytest

from gemel import Client, Context, DefinitionError, Server

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
T = TypeVar("T")


@dataclass
class Filter:
    """Some defaults are attributes of the class, others are made for each instance."""

    city: str = "Oslo"
    days: int = 3
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Point:
    x: int = 0


@dataclass
class Base:
    id: int


@dataclass
class Child(Base, Generic[T]):
    value: T | None = None
    inner: Filter = field(default_factory=Filter)


class Struct(msgspec.Struct):
    filter: Filter
    named: dict[str, Filter] = {}


@attrs.define(slots=False)
class Attrs:
    points: list[Point]
    name: str = "a"


@dataclass(slots=True)
class Slots:
    filter: Filter
    x: int = 1


FILTER = {"city": "Oslo", "days": 3, "tags": []}
#: Annotations with what a caller passes, and with what the value is written as.
LEFT_OUT: tuple[tuple[Any, Any, Any], ...] = (
    (Filter, {}, FILTER),
    (Filter, {"days": 1}, FILTER | {"days": 1}),
    (Filter | None, {}, FILTER),
    (list[Filter], [{}], [FILTER]),
    (dict[str, Filter], {"a": {}}, {"a": FILTER}),
    (tuple[int, Filter], [1, {}], [1, FILTER]),
    (set[Point], [{}], [{"x": 0}]),
    (Child[int], {"id": 1, "inner": {}}, {"id": 1, "value": None, "inner": FILTER}),
    (Struct, {"filter": {}, "named": {"a": {}}}, {"filter": FILTER, "named": {"a": FILTER}}),
    (Attrs, {"points": [{}]}, {"points": [{"x": 0}], "name": "a"}),
    (Slots, {"filter": {}}, {"filter": FILTER, "x": 1}),
)


@both_eras
@pytest.mark.parametrize(("annotation", "given", "written"), LEFT_OUT)
async def test_members_that_a_caller_leaves_out_are_written(
    annotation: Any, given: Any, written: Any, era: Any
) -> None:
    server: Server[Any] = Server("defaults")

    def same(value: Any) -> Any:
        return value

    same.__annotations__ = {"value": annotation, "return": annotation}
    server.tool(same)

    def untyped(value: Any) -> Any:
        return {"value": value}

    untyped.__annotations__ = {"value": annotation, "return": dict[str, Any]}
    server.tool(untyped)
    async with Client(server, era=era) as client:
        result = await client.call_tool("same", {"value": given})
        assert msgspec.json.decode(result.text) == written
        result = await client.call_tool("untyped", {"value": given})
        assert result.structured_content == {"value": written}


async def test_a_dataclass_has_its_defaults_as_attributes_of_its_own() -> None:
    server: Server[Any] = Server("defaults")

    @server.tool
    def attributes(value: Filter) -> list[str]:
        assert vars(value) == asdict(value)
        return sorted(vars(value))

    @server.tool
    async def asked(ctx: Context) -> dict[str, Any]:
        return {"filter": await ctx.elicit("Which?", Point)}

    async with Client(server, on_elicit=lambda _: {}) as client:
        assert (await client.call_tool("attributes", {"value": {}}, returns=list[str])).data == ["city", "days", "tags"]
        assert (await client.call_tool("asked")).structured_content == {"filter": {"x": 0}}


class Limits(pydantic.BaseModel):
    most: float = math.inf
    least: float = pydantic.Field(default=-math.inf)
    range: tuple[float, float] = (0, math.inf)


@dataclass
class Budget:
    most: float = math.inf


class Range(msgspec.Struct):
    most: float = math.nan


def infinite(most: float = math.inf) -> bool:
    return most == math.inf


def limited(most: Annotated[float, pydantic.Field(gt=0)] = math.inf) -> bool:
    return most == math.inf


def pair(bounds: tuple[float, float] = (-math.inf, math.inf)) -> bool:
    return bounds == (-math.inf, math.inf)


def model(limits: Limits) -> bool:
    return limits.most == math.inf


def default_model(limits: Limits = Limits()) -> bool:  # noqa: B008
    return limits.range[1] == math.inf


def data(budget: Budget) -> bool:
    return budget.most == math.inf


def struct(range: Range) -> bool:
    return math.isnan(range.most)


@pytest.mark.parametrize("function", [infinite, limited, pair, model, default_model, data, struct])
async def test_a_default_that_is_infinite_is_used_and_not_listed(function: Any) -> None:
    server: Server[Any] = Server("limits")
    server.tool(function)
    async with Client(server) as client:
        (tool,) = await client.list_tools()
        arguments: dict[str, Any] = {name: {} for name in tool.input_schema.get("required", ())}
        assert (await client.call_tool(tool.name, arguments)).text == "true"
        listed = msgspec.json.encode(tool.input_schema)
        assert b"null" not in listed
        assert b'"most":{"type":"number"' in listed or b'"bounds"' in listed or b'"limits":' in listed


@pytest.mark.parametrize("value", [Limits(most=1, least=0, range=(0, 1)), Budget(1), Range(1)])
async def test_a_result_may_have_a_field_whose_default_is_infinite(value: Any) -> None:
    server: Server[Any] = Server("limits")

    def result() -> Any:
        return value

    result.__annotations__ = {"return": type(value)}
    server.tool(result)
    async with Client(server) as client:
        structured: Any = (await client.call_tool("result")).structured_content
        assert structured["most"] == 1


class Corner(enum.Enum):
    LEFT = (0, 0)
    RIGHT = (1, 0)


class Box(pydantic.BaseModel):
    corner: Corner = Corner.LEFT


def corner(corner: Corner) -> None: ...


def box(box: Box) -> None: ...


@pytest.mark.parametrize("function", [corner, box])
def test_an_enum_of_tuples_is_refused_since_no_call_could_pass_it(function: Any) -> None:
    with pytest.raises(DefinitionError, match="can't be read from JSON"):
        Server("enums").tool(function)


async def test_an_enum_of_tuples_is_written() -> None:
    server: Server[Any] = Server("enums")

    @server.tool
    def get() -> Box:
        return Box()

    async with Client(server) as client:
        assert (await client.call_tool("get")).structured_content == {"corner": [0, 0]}


class Timer(pydantic.BaseModel):
    left: timedelta


@pytest.mark.parametrize("annotation", [timedelta, Timer])
@pytest.mark.parametrize("left", [timedelta(seconds=1.5), timedelta(days=-1)])
async def test_durations_with_a_sign_or_fractions_fit_what_is_listed(annotation: Any, left: timedelta) -> None:
    """The format `duration` (RFC 3339, appendix A) has neither, and clients that check formats refuse them."""
    server: Server[Any] = Server("timers")

    def get() -> Any:
        return left if annotation is timedelta else Timer(left=left)

    get.__annotations__ = {"return": annotation}
    server.tool(get)
    async with Client(server) as client:
        (tool,) = await client.list_tools()
        assert b"duration" not in msgspec.json.encode(tool.output_schema)
        assert not (await client.call_tool("get", raise_on_error=False)).is_error
