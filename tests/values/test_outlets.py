"""Values of any library leave by every outlet in the same way: as their base type, or as their own library writes them."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import types
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import attrs
import msgspec
import numpy as np
import pydantic
import pydantic.dataclasses
import pytest

from gemel import (
    CallToolResult,
    Client,
    Context,
    GemelError,
    Image,
    LogParams,
    Message,
    ResourceContents,
    Server,
    Tasks,
    TextContent,
)
from tests.support import jsonrpc


class Word(str):
    """As bs4.NavigableString, markupsafe.Markup and the results of lxml."""

    def __str__(self) -> str:
        return "another text"


class Number(int):
    """As bson.Int64."""


class Ratio(float): ...


class Stamp(dt.datetime):
    """As pandas.Timestamp and pendulum.DateTime."""


class Day(dt.date): ...


class Span(dt.timedelta): ...


class Blob(bytes): ...


class Price(decimal.Decimal): ...


class User(pydantic.BaseModel):
    id: int = pydantic.Field(1, alias="_id")
    password: str = pydantic.Field("secret", exclude=True)

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic has it
    @property
    def name(self) -> str:
        return f"user {self.id}"


class Names(pydantic.RootModel[list[str]]): ...


@pydantic.dataclasses.dataclass
class Account:
    number: int
    pin: str = pydantic.Field(default="1234", exclude=True)


_account: Any = Account


@dataclass
class Holder:
    value: Any


@attrs.define
class Attrs:
    x: int


class Struct(msgspec.Struct, rename="camel"):
    first_name: str


class Row(NamedTuple):
    x: int


class Colour(enum.Enum):
    RED = "red"
    POINT = pathlib.PurePosixPath("/a")


USER_MODEL = User.model_validate({})
USER = {"_id": 1, "name": "user 1"}

#: Values with what a peer reads.
VALUES: tuple[tuple[Any, Any], ...] = (
    (Word("x"), "x"),
    (Number(3), 3),
    (Ratio(1.5), 1.5),
    (Stamp(2026, 1, 31, 12, tzinfo=dt.UTC), "2026-01-31T12:00:00Z"),
    (Day(2026, 1, 31), "2026-01-31"),
    (Span(hours=1), "PT3600S"),
    (Blob(b"hi"), "aGk="),
    (collections.UserString("x"), "x"),
    (Price("1.50"), "1.50"),
    (np.int64(3), 3),
    (np.float32(1.5), 1.5),
    (np.float64(1.5), 1.5),
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (np.datetime64("2026-01-31T12:00:00.000000005", "ns"), "2026-01-31T12:00:00"),
    (np.timedelta64(5, "s"), "PT5S"),
    (np.array(7), 7),
    (USER_MODEL, USER),
    (Names(["a"]), ["a"]),
    (_account(number=1), {"number": 1}),
    (Holder([_account(number=1), USER_MODEL]), {"value": [{"number": 1}, USER]}),
    (pydantic.SecretStr("s"), "**********"),
    (pydantic.AnyUrl("http://a.example"), "http://a.example/"),
    (Attrs(1), {"x": 1}),
    (Struct("Ada"), {"firstName": "Ada"}),
    (Row(1), [1]),
    (Colour.RED, "red"),
    (Colour.POINT, "/a"),
    (pathlib.PurePosixPath("/a"), "/a"),
    (ipaddress.ip_address("::1"), "::1"),
    (ipaddress.ip_network("10.0.0.0/8"), "10.0.0.0/8"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (fractions.Fraction(1, 2), "1/2"),
    (re.compile("a+"), "a+"),
    (collections.deque([1]), [1]),
    (range(2), [0, 1]),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (collections.ChainMap({"a": 1}), {"a": 1}),
    (collections.Counter("aa"), {"a": 2}),
    ({"a": 1}.keys(), ["a"]),
    (frozenset([1]), [1]),
    ({pydantic.AnyUrl("http://a.example"): 1, fractions.Fraction(1, 2): 2}, {"http://a.example/": 1, "1/2": 2}),
    ({True: 1, None: 2, 3: 4}, {"true": 1, "null": 2, "3": 4}),
    ({np.int64(1): 1, Number(2): 2, pathlib.PurePosixPath("a"): 3, Colour.RED: 4}, {"1": 1, "2": 2, "a": 3, "red": 4}),
)
both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
VALUE = pytest.mark.parametrize(("value", "seen"), VALUES, ids=lambda one: type(one).__name__)

#: Values without a JSON form, with the place, the type and the advice.
REFUSED: tuple[tuple[Any, str], ...] = (
    ({"rows": [{"price": np.array([1])}]}, r"ndarray at `rows\[0\].price`.* convert it with .tolist\(\)"),
    ({"user": Holder({"x": object()})}, r"object at `user.value.x`.* convert it to a str"),
    ([User.model_construct(id=float("nan"))], r"NaN at `\[0\].id`.* use None"),
    (Names.model_construct(cast("Any", [1.5, None, float("inf")])), r"infinity at `root\[2\]`.* use None"),
    ({"x": np.float32("nan")}, r"NaN at `x`.* use None"),
    ({"x": float("inf")}, r"infinity at `x`.* use None"),
    ({"x": np.datetime64("NaT", "s")}, r"datetime64 without a value at `x`.* use None"),
    ({"x": np.ma.masked}, r"MaskedConstant without a value at `x`.* use None"),
    ({"x": ...}, r"ellipsis at `x`.* convert it to a str"),
    ({"a": {(1, 2): 3}}, r"tuple as a key at `a`.* use strings as keys"),
    ({"f": open}, r"builtin_function_or_method at `f`"),
)
WRONG = pytest.mark.parametrize(("value", "message"), REFUSED, ids=[message[:12] for _, message in REFUSED])


@VALUE
def test_what_is_encoded_where_it_is_not_annotated(value: Any, seen: Any) -> None:
    assert msgspec.json.decode(_sent(value)) == {"value": seen}


def _sent(value: Any) -> bytes:
    message: Any = msgspec.json.decode(jsonrpc.encode_notification("acme/note", {"value": value}))
    return msgspec.json.encode(message["params"])


def make_server() -> tuple[Server[Any], dict[str, Any]]:
    """A server whose functions send `given["value"]` in each way that there is."""
    server: Server[Any] = Server("values")
    server.add_extension(Tasks(poll_interval=0.01))
    given: dict[str, Any] = {}

    @server.tool
    def unannotated():  # type: ignore[no-untyped-def]  # as authors write it
        return [given["value"]]

    @server.tool
    def anything() -> Any:
        return {"v": given["value"]}

    @server.tool
    def mapping() -> dict[str, Any]:
        return {"v": given["value"]}

    @server.tool
    def whole() -> CallToolResult:
        return CallToolResult(content=[], structured_content={"v": given["value"]})

    @server.tool(output_schema={"type": "object"})
    def explicit() -> Any:
        return {"v": given["value"]}

    @server.tool
    async def nested(ctx: Context) -> Any:
        return (await ctx.call_tool("echo", {"v": given["value"]})).structured_content

    @server.tool
    async def step(ctx: Context) -> Any:
        def made() -> Any:
            return {"v": given["value"]}

        return await ctx.step(made)

    @server.tool
    async def logged(ctx: Context) -> str:
        await ctx.info({"v": given["value"]})
        return "logged"

    @server.tool(task=True)
    def task() -> dict[str, Any]:
        return {"v": given["value"]}

    @server.tool(task=True)
    def echo(v: Any) -> dict[str, Any]:
        return {"v": v}

    @server.resource("value://1")
    def resource() -> Any:
        return {"v": given["value"]}

    return server, given


#: What each tool has around the value.
TOOLS = ("unannotated", "anything", "mapping", "whole", "explicit", "nested", "step")


def _seen(result: CallToolResult[Any]) -> Any:
    if result.structured_content is not msgspec.UNSET:
        return result.structured_content["v"]
    read: Any = msgspec.json.decode(result.text)
    return read[0] if isinstance(read, list) else read["v"]


@both_eras
async def test_each_outlet_of_a_server_sends_what_is_encoded(era: Any) -> None:
    server, given = make_server()
    logged: list[LogParams] = []
    async with Client(server, era=era, on_log=logged.append) as client:
        for value, seen in VALUES:
            given["value"] = value
            for tool in TOOLS:
                assert _seen(await client.call_tool(tool)) == seen, (tool, value)
            await client.call_tool("logged")
            assert logged[-1].data == {"v": seen}
            contents = (await client.read_resource("value://1")).contents
            assert msgspec.json.decode(contents[0].text or "") == {"v": seen}
            assert (await client.call_tool("echo", {"v": value})).structured_content == {"v": seen}


@both_eras
async def test_tasks_and_their_arguments(era: Any) -> None:
    server, given = make_server()
    given["value"] = USER_MODEL
    async with Client(server, era=era) as client:
        await client.list_tools()
        for arguments in ({}, {"v": USER_MODEL}):
            task = await client.call_tool("echo" if arguments else "task", arguments, task=True)
            assert _seen(await task.result(total=10)) == USER


@both_eras
async def test_texts_numbers_and_blocks_of_a_subclass(era: Any) -> None:
    server: Server[Any] = Server("subclasses")
    heard: list[Any] = []

    @server.tool
    def text() -> str:
        return Word("x")

    @server.tool
    def block() -> CallToolResult:
        return CallToolResult(content=[TextContent(text=Word("x"), meta={"a": np.int64(1)})], meta={"b": USER_MODEL})

    @server.tool
    def day() -> dt.date:
        return Stamp(2026, 1, 31).date()

    @server.tool
    async def progress(ctx: Context) -> str:
        await ctx.report_progress(np.float32(1.5), np.int64(2), Word("half"))
        return "done"

    @server.prompt
    def ask(word: str) -> list[Message]:
        return [Message(Word(word)), Message(TextContent(text=Word(word)), role="assistant")]

    @server.resource("word://1")
    def word() -> str:
        return Word("x")

    @server.resource("word://2")
    def contents() -> ResourceContents:
        return ResourceContents(uri=Word("word://2"), text=Word("x"))

    @ask.complete("word")
    def words(value: str) -> list[str]:
        return [Word("x")]

    async with Client(server, era=era) as client:
        assert (await client.complete(argument="word", prompt="ask")).values == ["x"]
        for name in ("text", "block"):
            result = await client.call_tool(name)
            assert (result.text, type(result.text)) == ("x", str)
        assert result.meta is not None
        assert (result.content[0].meta, result.meta["b"]) == ({"a": 1}, USER)
        assert (await client.call_tool("day", returns=dt.date)).data == dt.date(2026, 1, 31)
        await client.call_tool("progress", on_progress=heard.append)
        assert [(one.progress, one.total, one.message) for one in heard] == [(1.5, 2, "half")]
        messages = (await client.get_prompt("ask", {"word": Word("x")})).messages
        assert [message.text for message in messages] == ["x", "x"]
        for uri in ("word://1", "word://2"):
            assert (await client.read_resource(uri)).contents[0].text == "x"


@both_eras
async def test_a_list_whose_annotation_allows_content_is_sent_as_blocks(era: Any) -> None:
    server: Server[Any] = Server("content")
    given: list[Any] = []

    @server.tool
    def listed() -> list[str | Image]:
        return given

    @server.tool
    def produced() -> Iterator[TextContent]:
        return iter(given)

    async with Client(server, era=era) as client:
        for name in ("listed", "produced"):
            result = await client.call_tool(name)
            assert (result.content, result.structured_content) == ([], msgspec.UNSET)
        given[:] = [Word("a"), USER_MODEL, np.int64(3), ["b", [TextContent(text="c")]], {"d": 1}]
        for name in ("listed", "produced"):
            texts = [block.text for block in (await client.call_tool(name)).content if isinstance(block, TextContent)]
            assert texts == ["a", '{"_id":1,"name":"user 1"}', "3", "b", "c", '{"d":1}']


async def test_what_a_middleware_makes() -> None:
    server, given = make_server()
    given["value"] = 1

    async def replaced(ctx: Context, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        content = [{"type": "text", "text": Word("x")}]
        return {"content": content, "structuredContent": {"v": USER_MODEL}, "resultType": "complete"}

    server.add_middleware(replaced)
    async with Client(server) as client:
        result = await client.call_tool("anything")
        assert (result.text, result.structured_content) == ("x", {"v": USER})


@both_eras
async def test_an_answer_to_a_form(era: Any) -> None:
    server: Server[Any] = Server("forms")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("How many?", int)
        return f"{answer} {type(answer).__name__}"

    def on_elicit(params: Any) -> dict[str, Any]:
        return {"value": np.int64(3)}

    async with Client(server, era=era, on_elicit=on_elicit) as client:
        assert (await client.call_tool("ask")).text == "3 int"


@both_eras
@WRONG
async def test_what_has_no_json_form_is_an_error_of_the_tool(
    value: Any, message: str, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server, given = make_server()
    given["value"] = value
    async with Client(server, era=era, on_log=lambda message: None) as client:
        for tool in (*TOOLS, "logged"):
            caplog.clear()
            result = await client.call_tool(tool, raise_on_error=False)
            assert result.is_error
            assert f"Tool '{tool}'" in caplog.text
            assert re.search(
                message.replace("at `", r"at `(params\.)?(data\.|arguments\.)?(v|\[0\])\.?"), caplog.text
            ), caplog.text


@WRONG
async def test_what_has_no_json_form_is_not_sent_by_a_client(value: Any, message: str) -> None:
    server, _ = make_server()
    async with Client(server) as client:
        with pytest.raises(GemelError, match=message.replace("at `", r"at `arguments.v\.?")):
            await client.call_tool("echo", {"v": value})


def test_values_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    assert (
        _sent([pandas.Timestamp("2026-01-31"), pandas.Timedelta("1h")])
        == b'{"value":["2026-01-31T00:00:00","PT3600S"]}'
    )
    for value, advice in (
        (pandas.DataFrame({"a": [1]}), r'DataFrame at .* convert it with .to_dict\("records"\)'),
        (pandas.Series([1]), r"Series at .* convert it with .tolist\(\)"),
        (pandas.NaT, "NaTType at .* use None"),
        (pandas.NA, "NAType at .* use None"),
    ):
        with pytest.raises(TypeError, match=advice):
            _sent(value)


def test_strings_of_a_parser_of_html() -> None:
    bs4 = pytest.importorskip("bs4")
    assert _sent(bs4.BeautifulSoup("<p>x</p>", "html.parser").p.string) == b'{"value":"x"}'
    with pytest.raises(TypeError, match=r"Tag at .* convert it to a str"):
        _sent(bs4.BeautifulSoup("<p>x</p>", "html.parser").p)


class Listed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(from_attributes=True)
    id: int
    name: str = ""


class Record:
    """As a row of an ORM: some attributes are made when they are read."""

    def __init__(self, number: int) -> None:
        self.id = number

    @property
    def name(self) -> str:
        return f"row {self.id}"


async def test_objects_are_read_by_a_model_with_from_attributes() -> None:
    server: Server[Any] = Server("rows")

    @server.tool
    def one() -> Listed:
        return Record(1)  # type: ignore[return-value]  # as FastAPI takes it

    @server.tool
    def several() -> list[Listed]:
        return [Record(1), Listed(id=2)]  # type: ignore[list-item]  # as FastAPI takes it

    async with Client(server) as client:
        assert (await client.call_tool("one")).structured_content == {"id": 1, "name": "row 1"}
        result = await client.call_tool("several", returns=list[Listed])
        assert result.data == [Listed(id=1, name="row 1"), Listed(id=2)]
