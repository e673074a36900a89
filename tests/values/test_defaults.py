"""Defaults: what a caller leaves out is there when the value is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

import attrs
import msgspec
import pytest

from gemel import Client, Context, Server

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
