"""Keys of objects that aren't strings: what is listed is what is accepted, and no key replaces another."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NewType

import msgspec
import pydantic
import pytest
from msgspec import Meta
from pydantic import Field

from gemel import Client, Server
from tests.values.agreement import judge


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    NONE = 0
    LOW = 1
    HIGH = 3


class Switch(enum.Enum):
    ON = True
    OFF = False


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    LOW = 1
    HIGH = 4


Number = NewType("Number", int)

MSGSPEC: dict[str, Any] = {
    "int": int,
    "float": float,
    "Decimal": decimal.Decimal,
    "date": dt.date,
    "datetime": dt.datetime,
    "time": dt.time,
    "timedelta": dt.timedelta,
    "UUID": uuid.UUID,
    "bytes": bytes,
    "Colour": Colour,
    "Level": Level,
    "Rights": Rights,
    "Literal of strings": Literal["a", "b"],
    "Literal of integers": Literal[1, 2],
    "Literal of both": Literal["a", 1],
    "NewType": Number,
    "int | None": int | None,
    "int | str": int | str,
    "int | float": int | float,
    "UUID | int": uuid.UUID | int,
    "Colour | int": Colour | int,
    "limited str": Annotated[str, Meta(min_length=1, max_length=3)],
    "int from 0": Annotated[int, Meta(ge=0)],
    "int above 0": Annotated[int, Meta(gt=0)],
    "int below 0": Annotated[int, Meta(lt=0)],
    "int from 1 to 5": Annotated[int, Meta(ge=1, le=5)],
    "float from 0": Annotated[float, Meta(ge=0)],
    "datetime with a zone": Annotated[dt.datetime, Meta(tz=True)],
    "datetime without a zone": Annotated[dt.datetime, Meta(tz=False)],
}
#: Types that only pydantic reads, and the others by pydantic.
PYDANTIC: dict[str, Any] = {
    "bool": bool,
    "bool | int": bool | int,
    "bool | str": bool | str,
    "Switch": Switch,
    "Mixed": Mixed,
    "Literal of a boolean": Literal[True],
    "Literal of a boolean and a string": Literal[True, "x"],
    "date | datetime": dt.date | dt.datetime,
    "Path": pathlib.PurePosixPath,
    "IPv4Address": ipaddress.IPv4Address,
    "IPv6Address": ipaddress.IPv6Address,
    "IPv6Network": ipaddress.IPv6Network,
    "Fraction": fractions.Fraction,
    "AnyUrl": pydantic.AnyUrl,
    "PositiveInt": pydantic.PositiveInt,
    "StrictInt": pydantic.StrictInt,
    "AwareDatetime": pydantic.AwareDatetime,
    "NaiveDatetime": pydantic.NaiveDatetime,
    "multiples of 3": Annotated[int, Field(ge=1, le=9, multiple_of=3)],
    "limited Decimal": Annotated[decimal.Decimal, Field(ge=0)],
    "Decimal with few digits": Annotated[decimal.Decimal, Field(max_digits=20, decimal_places=2)],
    **{
        f"{name} by pydantic": Annotated[kind, Field(description="d")]
        for name, kind in MSGSPEC.items()
        if not isinstance(getattr(kind, "__metadata__", (None,))[0], Meta)
        and name not in ("Literal of integers", "Rights")  # pydantic never reads these
    },
    "Bits by pydantic": Annotated[Bits, Field(description="d")],
}

KEYS = {**MSGSPEC, **PYDANTIC}

TEXTS = (
    *("", "a", "b", "red", "RED", "two", "x", "é", "abcd"),
    *(
        "true",
        "True",
        "TRUE",
        "t",
        "yes",
        "y",
        "on",
        "false",
        "False",
        "0",
        "-0",
        "1",
        "01",
        "+1",
        " 1",
        "1 ",
        "1_0",
        "1\n",
    ),
    *(
        "2",
        "3",
        "5",
        "6",
        "9",
        "10",
        "-7",
        "4503599627370497",
        "1.0",
        "1.",
        ".5",
        "0.5",
        "1.5",
        "1.50",
        "01.5",
        "1e2",
        "1E2",
        "100",
    ),
    *("nan", "NaN", "inf", "Infinity", "-Infinity", "null", "None", "0x1"),
    *("2026-01-31", "2026-01-31T12:00:00Z", "2026-01-31T14:00:00+02:00", "2026-01-31T12:00:00", "1769817600"),
    *("12:30:00Z", "12:30:00", "14:30:00+02:00", "PT1H", "PT60M", "P1D"),
    *(
        "12345678-1234-5678-1234-567812345678",
        "1234567812345678123456781234567a",
        "12345678-1234-5678-1234-56781234567A",
    ),
    *(
        "12345678-1234-5678-1234-56781234567a",
        "/a",
        "/a/",
        "//a",
        "1.2.3.4",
        "::1",
        "0:0:0:0:0:0:0:1",
        "::/8",
        "aGk=",
    ),
    *("1/2", "2/4", "http://a.example", "http://a.example/", "HTTP://A.example/"),
)


def _reads(kind: Callable[[str], Any]) -> Callable[[str], bool]:
    def reads(text: str) -> bool:
        try:
            kind(text)
        except (ValueError, msgspec.ValidationError):
            return False
        return True

    return reads


#: Dates and times without a time zone, durations with a sign and UUIDs in other notations are read, too.
FORMATS: dict[str, Callable[[str], bool]] = {
    form: _reads(partial(msgspec.convert, type=kind))
    for form, kind in {
        "contentEncoding base64": bytes,
        "date": dt.date,
        "date-time": dt.datetime,
        "duration": dt.timedelta,
        "time": dt.time,
        "uuid": uuid.UUID,
    }.items()
} | {"fraction": _reads(fractions.Fraction), "ipv6network": _reads(ipaddress.IPv6Network)}


def _has_zone(text: str) -> bool:
    return FORMATS["date-time"](text) and dt.datetime.fromisoformat(text).tzinfo is not None


class Taking:
    """A server with a tool that takes an object with keys of a type, and remembers those of the last call."""

    def __init__(self, kind: Any) -> None:
        self.server: Server[Any] = Server("keys")
        self._keys: list[Any] = []

        def take(x: Any) -> None:
            self._keys = list(x)

        take.__annotations__["x"] = dict[kind, Any]
        self.server.tool(take)

    async def keys(self, client: Client, *texts: str) -> list[Any] | None:
        """The keys that the tool gets; None if it refuses them."""
        arguments = {"x": dict.fromkeys(texts, 1)}
        result = await client.request("tools/call", {"name": "take", "arguments": arguments})
        if result.get("isError"):
            text = result["content"][0]["text"]
            assert text.startswith("Invalid arguments"), text
            return None
        return self._keys


@pytest.mark.parametrize("name", KEYS)
async def test_a_key_is_accepted_if_it_is_listed(name: str) -> None:
    taking = Taking(KEYS[name])
    async with Client(taking.server) as client:
        (tool,) = await client.list_tools()
        needs_zone = name in ("AwareDatetime", "datetime with a zone")
        is_listed = judge(tool.input_schema, FORMATS | ({"date-time": _has_zone} if needs_zone else {}))
        for text in TEXTS:
            accepted = await taking.keys(client, text) is not None
            assert accepted == is_listed({"x": {text: 1}}), (text, tool.input_schema)


@pytest.mark.parametrize("name", KEYS)
async def test_no_key_replaces_another(name: str) -> None:
    """Two names that are the same key in Python are refused; all others are accepted together."""
    taking = Taking(KEYS[name])
    async with Client(taking.server) as client:
        firsts: dict[Any, str] = {}
        for text in TEXTS:
            for key in await taking.keys(client, text) or ():
                first = firsts.setdefault(key, text)
                assert first == text or await taking.keys(client, first, text) is None, (first, text)
        assert await taking.keys(client, *firsts.values()) == list(firsts)


@dataclass
class Shelf:
    books: dict[uuid.UUID, int]


class Library(pydantic.BaseModel):
    shelves: list[dict[float, Shelf]] = []
    parts: dict[str, Library] = {}


class Node(msgspec.Struct):
    children: dict[int, Node] = {}


ID = "12345678-1234-5678-1234-56781234567a"


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        (dict[int, int], {"0": 1, "-0": 2}, 'x.-0: means the same key as "0"; send one of the two'),
        (dict[bool, str | str], {"true": "1", "1": "/a"}, 'x["1"]: the key must be one of "true", "false"'),
        (dict[bytes, int], {"aGk=": 1, "aGl=": 2}, 'x["aGl="]: means the same key as "aGk="; send one of the two'),
        (dict[float, int] | None, {"nan": 1}, "x.nan: the key must be number"),
        (
            Shelf,
            {"books": {ID: 1, ID.upper(): 2}},
            f'x.books["{ID.upper()}"]: means the same key as "{ID}"; send one of the two',
        ),
        (
            Library,
            {"parts": {"a": {"shelves": [{}, {"1": {"books": {}}, "1.0": {"books": {}}}]}}},
            'x.parts.a.shelves[1]["1.0"]: means the same key as "1"; send one of the two',
        ),
        (
            Node,
            {"children": {"1": {"children": {"0": {}, "-0": {}}}}},
            'x.children["1"].children.-0: means the same key as "0"; send one of the two',
        ),
        (
            dict[bool, int] | dict[Annotated[str, Field(max_length=3)], str],
            {"yes": 1},
            'x: fits none of 2 alternatives: alternative 1 (yes: the key must be one of "true", "false"), '
            "alternative 2 (yes: expected string, got integer 1)",
        ),
    ],
)
async def test_the_error_names_the_key(kind: Any, value: Any, error: str) -> None:
    server: Server[Any] = Server("keys")

    def take(x: Any) -> str:
        return "taken"

    take.__annotations__["x"] = kind
    server.tool(take)
    async with Client(server) as client:
        result = await client.call_tool("take", {"x": value}, raise_on_error=False)
    assert result.text == f"Invalid arguments for tool 'take': {error}"


async def test_keys_of_long_arguments_are_checked() -> None:
    taking = Taking(int)
    numbers = [str(number) for number in range(20_000)]
    async with Client(taking.server) as client:
        assert await taking.keys(client, *numbers) == list(range(20_000))
        assert await taking.keys(client, *numbers, "-0") is None


async def test_a_key_that_is_no_number_is_not_sent() -> None:
    server: Server[Any] = Server("keys")

    @server.tool
    def give() -> dict[float, int]:
        return {float("nan"): 1}

    async with Client(server) as client:
        assert (await client.call_tool("give", raise_on_error=False)).is_error
