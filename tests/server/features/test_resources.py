"""Resources: what is listed, what is found, what a reader gets."""

from __future__ import annotations

import base64
import io
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from gemel import (
    Annotations,
    Changed,
    Client,
    Context,
    DefinitionError,
    Depends,
    File,
    Icon,
    Image,
    InternalError,
    InvalidParams,
    PeerError,
    ReadResourceResult,
    ResourceContents,
    ResourceNotFound,
    Server,
)
from gemel.server.features.resources import MAX_URI
from tests.wire.talk import Refusal, Talk, talking

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


async def read(peer: Talk, uri: str) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = (await peer.result("resources/read", uri=uri))["contents"]
    return contents


async def refusal(peer: Talk, uri: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await read(peer, uri)
    return caught.value


# ---------------------------------------------------------------- lists


@both_eras
async def test_a_resource_is_listed_with_all_that_was_said_of_it(era: str) -> None:
    """RES-02, RES-03, ICON-01."""
    server = Server("s")

    @server.resource(
        "x://text.md",
        title="Text",
        size=4,
        annotations={"audience": ["user"], "priority": 0.5},
        icons=["https://x/icon.png", Icon(src="data:,")],
        meta={"acme/x": 1},
    )
    def text() -> str:
        """A text."""
        return "text"

    @server.resource(
        "x://{a}/b", name="of", description="One of many", mime_type="text/csv", annotations=Annotations(priority=1)
    )
    def one(a: str) -> str:
        """Not shown."""
        return a

    async with talking(server, era) as peer:
        listed = (await peer.result("resources/list"))["resources"]
        templates = (await peer.result("resources/templates/list"))["resourceTemplates"]
    assert listed == [
        {
            "uri": "x://text.md",
            "name": "text",
            "title": "Text",
            "description": "A text.",
            "mimeType": "text/markdown",
            "size": 4,
            "annotations": {"audience": ["user"], "priority": 0.5},
            "icons": [{"src": "https://x/icon.png"}, {"src": "data:,"}],
            "_meta": {"acme/x": 1},
        }
    ]
    assert templates == [
        {
            "uriTemplate": "x://{a}/b",
            "name": "of",
            "description": "One of many",
            "mimeType": "text/csv",
            "annotations": {"priority": 1.0},
        }
    ]


@both_eras
async def test_the_capability_is_there_before_the_first_resource(era: str) -> None:
    """RES-01: what is registered later was negotiated; completion is declared with the first completer."""
    server = Server("s")
    ask = "initialize" if era == "2025" else "server/discover"
    async with talking(server, era) as peer:
        assert (await peer.result("resources/list"))["resources"] == []

        @server.resource("x://{a}")
        def one(a: str) -> str:
            return a

        assert await peer.result("resources/list")
        if ask == "server/discover":
            assert (await peer.result(ask))["capabilities"] == {
                "tools": {"listChanged": True},
                "prompts": {"listChanged": True},
                "resources": {"subscribe": True, "listChanged": True},
                "logging": {},
            }
        one.complete("a")(lambda value: ["1"])
        reference = {"type": "ref/resource", "uri": "x://{a}"}
        done = await peer.result("completion/complete", ref=reference, argument={"name": "a", "value": ""})
        assert done["completion"]["values"] == ["1"]


@both_eras
async def test_lists_of_several_pages_are_sorted(era: str) -> None:
    """PAGE-01, PAGE-06."""
    server = Server("s", page_size=2)
    for name in ("z", "a", "m", "b", "k"):
        server.resource(f"x://{name}", name=name)(lambda: "text")
        server.resource(f"x://{name}/{{v}}", name=name)(_of_v)
    async with talking(server, era) as peer:
        for method, member in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")):
            names: list[str] = []
            params: dict[str, Any] = {}
            for _ in range(3):
                page = await peer.result(method, **params)
                names += [item["name"] for item in page[member]]
                params = {"cursor": page.get("nextCursor")}
            assert names == ["a", "b", "k", "m", "z"]
            assert params == {"cursor": None}
            with pytest.raises(Refusal) as caught:
                await peer.result(method, cursor="nonsense")
            assert caught.value.code == -32602


def _of_v(v: str) -> str:
    return v


@both_eras
async def test_a_removed_resource_is_gone_and_clients_are_told(era: str) -> None:
    """SUB-14."""
    server = Server("s")
    server.resource("x://a", name="a")(lambda: "a")
    server.resource("x://{v}/b")(_of_v)
    async with talking(server, era) as peer:
        if era == "2026":
            await peer.begin("subscriptions/listen", notifications={"resourcesListChanged": True})
            await peer.hear("notifications/subscriptions/acknowledged")
        server.remove_resource("x://a")
        await peer.hear("notifications/resources/list_changed")
        assert (await refusal(peer, "x://a")).message == "Resource not found"
        server.remove_resource("x://{v}/b")
        with pytest.raises(KeyError):
            server.remove_resource("x://a")
        assert (await peer.result("resources/list"))["resources"] == []


# ---------------------------------------------------------------- finding


@both_eras
async def test_what_is_not_there_is_refused_in_the_words_of_the_era(era: str) -> None:
    """RES-05, RES-06."""
    server = Server("s")
    server.resource("x://{v}/b")(_of_v)

    @server.resource("x://raises")
    def raises() -> str:
        raise ResourceNotFound("x://elsewhere")

    @server.resource("x://none")
    def none() -> str | None:
        return None

    code = -32002 if era == "2025" else -32602
    async with talking(server, era) as peer:
        for uri in ("x://a", "y://a/b", "x://none", "x://" + "a" * 1000):
            found = await refusal(peer, uri)
            assert (found.code, found.data) == (code, {"uri": uri})
        assert (await refusal(peer, "x://raises")).data == {"uri": "x://elsewhere"}


@pytest.mark.parametrize("uri", ["", "a", "/etc/passwd", "1x:a", "x://a\nb", "x://\0", "x://" + "a" * MAX_URI])
async def test_what_is_no_uri_is_refused(uri: str) -> None:
    """RES-09: checked before any template sees it, and echoed only in part."""
    server = Server("s")
    server.resource("x://{+v}")(_of_v)
    async with talking(server, "2025") as peer:
        found = await refusal(peer, uri)
    assert found.code == -32602
    assert found.message.startswith("Invalid URI: ")
    assert len(found.data["uri"]) <= 2048


async def test_a_uri_without_variables_comes_first_then_the_most_specific_template() -> None:
    server = Server("s")
    for uri in ("x://{+v}", "x://{v}", "x://{v}/b", "x://a/{v}", "x://a/{+v}"):
        server.resource(uri)(_naming(uri))
    server.resource("x://a/b", name="static")(lambda: "static")
    async with talking(server, "2026") as peer:
        found = {
            uri: (await read(peer, uri))[0]["text"]
            for uri in ("x://a/b", "x://c/b", "x://a/c", "x://a", "x://a/c/d", "x://b/c")
        }
    assert found == {
        "x://a/b": "static",
        "x://c/b": "x://{v}/b",
        "x://a/c": "x://a/{v}",
        "x://a": "x://{v}",
        "x://a/c/d": "x://a/{+v}",
        "x://b/c": "x://{+v}",
    }


def _naming(text: str) -> Callable[[str], str]:
    def named(v: str) -> str:
        return text

    return named


async def test_a_template_is_no_resource_itself() -> None:
    server = Server("s")
    server.resource("x://{v}/{w}")(lambda_free)
    async with talking(server, "2026") as peer:
        assert (await read(peer, "x://{v}/{w}"))[0]["text"] == "{v} {w}"


def lambda_free(v: str, w: str) -> str:
    return f"{v} {w}"


class Colour(Enum):
    RED = "red"


@both_eras
async def test_variables_are_read_by_the_annotations_of_their_parameters(era: str) -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.resource("x://{day}/{colour}{/path*}{?wet,days*}")
    async def typed(
        ctx: Context,
        day: int,
        colour: Colour,
        path: list[str] | None = None,
        wet: bool = False,
        days: list[int] | None = None,
    ) -> str:
        seen.append((day, colour, path, wet, days))
        return ctx.method

    async with talking(server, era) as peer:
        assert (await read(peer, "x://3/red"))[0]["text"] == "resources/read"
        await read(peer, "x://4/red/a%2Fb/c?days=1&wet=true&days=2")
        found = await refusal(peer, "x://x/blue?days=1&days=y")
    assert seen == [(3, Colour.RED, None, False, None), (4, Colour.RED, ["a/b", "c"], True, [1, 2])]
    assert found.code == -32602
    assert "'x://{day}/{colour}{/path*}{?wet,days*}'" in found.message
    for words in ('day: expected integer, got string "x"', "colour: ", "days"):
        assert words in found.message


async def test_a_value_that_does_not_fit_is_the_callers_error_not_another_templates_chance() -> None:
    server = Server("s")

    @server.resource("x://{number}/b")
    def numbered(number: int) -> str:
        return "number"

    server.resource("x://{+v}")(_of_v)
    async with talking(server, "2025") as peer:
        assert (await read(peer, "x://1/b"))[0]["text"] == "number"
        found = await refusal(peer, "x://one/b")
    assert (found.code, found.message) == (
        -32602,
        "Invalid values for resource 'x://{number}/b': number: expected integer, got string \"one\"",
    )


async def test_a_required_parameter_makes_its_variable_required() -> None:
    server = Server("s")

    @server.resource("x://search{?q,limit}")
    def search(q: str, limit: Literal["1", "2"] = "1") -> str:
        return q + limit

    async with talking(server, "2026") as peer:
        assert (await read(peer, "x://search?limit=2&q=a"))[0]["text"] == "a2"
        assert "q: missing" in (await refusal(peer, "x://search?limit=2")).message


@pytest.mark.parametrize(
    "value", ["..", "%2e%2e%2fetc", "..%5Cetc", "%252e%252e%252f", "%2Fetc%2Fpasswd", "a%00b", "C:%5Cx"]
)
async def test_a_value_that_leads_out_of_a_folder_reaches_no_function(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RES-09: unless the author says that it is no path."""
    server = Server("s")
    server.resource("doc://{v}")(_of_v)
    server.resource("list://a{?v*}", name="l")(_listed)
    server.resource("raw://{v}", screen=False)(_of_v)
    caplog.set_level(logging.INFO, "gemel")
    async with talking(server, "2026") as peer:
        assert (await refusal(peer, f"doc://{value}")).message == "Resource not found"
        assert (await refusal(peer, f"list://a?v=ok&v={value}")).message == "Resource not found"
        assert "doc://{v}: rejected a value that leads out of a folder" in caplog.text
        assert (await read(peer, f"raw://{value}"))[0]["text"]


def _listed(v: list[str]) -> str:
    return str(v)


# ---------------------------------------------------------------- contents


class Day(msgspec.Struct):
    name: str
    high: float


def _chunks(*chunks: Any) -> Iterator[Any]:
    yield from chunks


async def _slowly(*chunks: Any) -> AsyncIterator[Any]:
    for chunk in chunks:
        yield chunk


ONE = ResourceContents(uri="x://other", blob="AA==", mime_type="a/b", meta={"acme/x": 1})

SHOWN = {"uri": "x://other", "blob": "AA==", "mimeType": "a/b", "_meta": {"acme/x": 1}}
TEXT, BINARY, JSON = "text/plain", "application/octet-stream", "application/json"

#: The end of the URI, what is returned, and the contents that a reader gets.
RETURNED: dict[str, tuple[str, Callable[[], Any], list[dict[str, Any]]]] = {
    "text": ("r", lambda: "text", [{"text": "text", "mimeType": TEXT}]),
    "empty text": ("r", lambda: "", [{"text": "", "mimeType": TEXT}]),
    "text with an ending": ("r.html", lambda: "<p>", [{"text": "<p>", "mimeType": "text/html"}]),
    "bytes": ("r", lambda: b"\0\1", [{"blob": "AAE=", "mimeType": BINARY}]),
    "empty bytes": ("r", lambda: bytearray(), [{"blob": "", "mimeType": BINARY}]),
    "bytes with an ending": ("r.png", lambda: memoryview(b"\0\1"), [{"blob": "AAE=", "mimeType": "image/png"}]),
    "dict": ("r", lambda: {"a": [1, None]}, [{"text": '{"a":[1,null]}', "mimeType": JSON}]),
    "list": ("r", lambda: ["a", "b"], [{"text": '["a","b"]', "mimeType": JSON}]),
    "empty list": ("r", lambda: list[int](), [{"text": "[]", "mimeType": JSON}]),
    "zero": ("r", lambda: 0, [{"text": "0", "mimeType": JSON}]),
    "false": ("r", lambda: False, [{"text": "false", "mimeType": JSON}]),
    "struct": ("r", lambda: Day("Mon", 3.5), [{"text": '{"name":"Mon","high":3.5}', "mimeType": JSON}]),
    "contents": ("r", lambda: ONE, [SHOWN]),
    "several": (
        "r",
        lambda: [ONE, "t", b"\0"],
        [SHOWN, {"text": "t", "mimeType": TEXT}, {"blob": "AA==", "mimeType": BINARY}],
    ),
    "image": ("r", lambda: Image(data=b"\0\1", format="png"), [{"blob": "AAE=", "mimeType": "image/png"}]),
    "text in a File": ("r", lambda: File(data=b"# A", format="md"), [{"text": "# A", "mimeType": "text/markdown"}]),
    "images": (
        "r",
        lambda: [Image(data=b"\0", format="png", meta={"acme/x": 1}), "t"],
        [{"blob": "AA==", "mimeType": "image/png", "_meta": {"acme/x": 1}}, {"text": "t", "mimeType": TEXT}],
    ),
    "result": ("r", lambda: ReadResourceResult(contents=[ONE]), [SHOWN]),
    "file": ("r", lambda: io.BytesIO(b"\0\1"), [{"blob": "AAE=", "mimeType": BINARY}]),
    "empty file": ("r", lambda: io.BytesIO(), [{"blob": "", "mimeType": BINARY}]),
    "text file": ("r", lambda: io.StringIO("text"), [{"text": "text", "mimeType": TEXT}]),
    "iterator": ("r", lambda: _chunks("te", "xt"), [{"text": "text", "mimeType": TEXT}]),
    "empty iterator": ("r", lambda: _chunks(), [{"text": "", "mimeType": TEXT}]),
    "async iterator": ("r", lambda: _slowly(b"\0", memoryview(b"\1")), [{"blob": "AAE=", "mimeType": BINARY}]),
}


@pytest.mark.parametrize("name", RETURNED)
@pytest.mark.parametrize("kind", ["async", "in a thread", "inline"])
async def test_what_a_function_returns_becomes_contents(name: str, kind: str) -> None:
    """RES-04: an empty text is a text."""
    path, make, contents = RETURNED[name]
    server = Server("s")

    async def make_async() -> Any:
        return make()

    server.resource(f"x://{path}", name="r", blocking=kind != "inline")(make_async if kind == "async" else make)
    async with talking(server, "2026") as peer:
        assert await read(peer, f"x://{path}") == [{"uri": f"x://{path}", **item} for item in contents]


async def test_the_annotation_may_be_an_image() -> None:
    server = Server("s")

    @server.resource("x://chart")
    def chart() -> Image:
        return Image(data=b"\0\1", format="png")

    async with talking(server, "2026") as peer:
        assert await read(peer, "x://chart") == [{"uri": "x://chart", "blob": "AAE=", "mimeType": "image/png"}]


async def test_a_given_mime_type_is_kept_whatever_is_returned() -> None:
    server = Server("s")
    made: dict[str, Callable[[], Any]] = {"text": lambda: "a", "bytes": lambda: b"a", "json": lambda: {"a": 1}}
    for name, make in made.items():
        server.resource(f"x://{name}.png", name=name, mime_type="a/b")(make)
    async with talking(server, "2026") as peer:
        for name in made:
            assert (await read(peer, f"x://{name}.png"))[0]["mimeType"] == "a/b"


class Source:
    """A stream that says whether it was closed."""

    closed = False

    def __init__(self, chunk: Any) -> None:
        self.chunk = chunk

    def read(self, size: int) -> Any:
        return self.chunk[:size]

    def close(self) -> None:
        self.closed = True


async def test_chunks_are_collected_up_to_a_limit_and_their_source_is_closed() -> None:
    """The limit is a setting of the server."""
    server = Server("s", resource_bytes=1000)
    endless, kept = Source(b"x" * 100), Source("")
    left: list[str] = []

    async def forever() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 100
        finally:
            left.append("forever")

    server.resource("x://endless", name="e")(lambda: endless)
    server.resource("x://kept", name="k")(lambda: kept)
    server.resource("x://forever", name="f")(lambda: forever())
    server.resource("x://exact", name="x")(lambda: _chunks(b"x" * 999, b"y"))
    async with talking(server, "2026") as peer:
        for uri in ("x://endless", "x://forever"):
            found = await refusal(peer, uri)
            assert (found.code, found.message) == (
                -32603,
                "The resource is larger than 1000 bytes, the limit of this server",
            )
        assert len(base64.b64decode((await read(peer, "x://exact"))[0]["blob"])) == 1000
        assert (await read(peer, "x://kept"))[0]["text"] == ""
    assert endless.closed
    assert kept.closed
    assert left == ["forever"]


@both_eras
async def test_a_resource_may_be_a_generator_of_chunks(era: str) -> None:
    """Sync ones run in a worker thread, chunk by chunk; dependencies stay until the last one."""
    server = Server("s", resource_bytes=1000)
    threads: list[str] = []
    order: list[str] = []

    async def book() -> AsyncIterator[list[str]]:
        yield ["one ", "two"]
        order.append("closed")

    @server.resource("x://lines")
    def lines(ctx: Context) -> Iterator[str]:
        """Line by line."""
        threads.append(threading.current_thread().name)
        ctx.sync.info("reading")
        yield "one\n"
        yield "two\n"

    @server.resource("x://bytes/{count}")
    async def some(count: int) -> AsyncGenerator[bytes, None]:
        for _ in range(count):
            yield b"x"

    @server.resource("x://pages")
    async def pages(book: Annotated[list[str], Depends(book)]):  # type: ignore[no-untyped-def]  # as users write it
        for page in book:
            yield page
        order.append("read")

    @server.resource("x://none/{name}")
    def none(name: str) -> Generator[str, None, None]:
        if name != "one":
            raise ResourceNotFound(f"x://none/{name}")
        yield from ()

    async with talking(server, era) as peer:
        assert (await read(peer, "x://lines"))[0]["text"] == "one\ntwo\n"
        assert threads != ["MainThread"]
        assert base64.b64decode((await read(peer, "x://bytes/3"))[0]["blob"]) == b"xxx"
        assert (await read(peer, "x://pages"))[0]["text"] == "one two"
        assert (await read(peer, "x://none/one"))[0]["text"] == ""
        assert (await refusal(peer, "x://none/two")).code == (-32002 if era == "2025" else -32602)
        found = await refusal(peer, "x://bytes/1001")
        assert (found.code, found.message) == (
            -32603,
            "The resource is larger than 1000 bytes, the limit of this server",
        )
    assert order == ["read", "closed"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: ResourceContents(uri="x://r"), "either text or blob"),
        (lambda: ResourceContents(uri="x://r", text="", blob=""), "either text or blob"),
        (lambda: ReadResourceResult(contents=[]), "raise ResourceNotFound instead"),
        (lambda: _chunks("a", b"b"), "all chunks must be of one kind"),
        (lambda: _chunks(1), "chunks are str or bytes"),
        (lambda: object(), "has no JSON form"),
    ],
)
async def test_what_can_not_be_sent_is_the_authors_error_and_the_reader_learns_nothing(
    value: Callable[[], Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RES-05, ERR-05: never empty contents."""
    server = Server("s")
    server.resource("x://r", name="r")(value)
    async with talking(server, "2026") as peer:
        found = await refusal(peer, "x://r")
    assert (found.code, found.message, found.data) == (-32603, "Internal server error", None)
    assert words in caplog.text


async def test_what_is_returned_must_fit_the_annotation(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    @server.resource("x://day")
    def day() -> Day:
        return {"name": "Mon"}  # type: ignore[return-value]  # a mistake of the author

    async with talking(server, "2026") as peer:
        assert (await refusal(peer, "x://day")).code == -32603
    assert "doesn't fit `-> Day`" in caplog.text


@both_eras
async def test_errors_of_a_function_pass_if_they_are_meant_for_the_reader_and_else_stay_here(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RES-06, ERR-05."""
    server = Server("s")

    @server.resource("x://secret")
    def secret() -> str:
        raise OSError("the password is 1234")

    @server.resource("x://plain")
    async def plain() -> str:
        raise InvalidParams("Not on Sundays", {"day": "Sunday"})

    @server.resource("x://internal")
    async def internal() -> str:
        raise InternalError("Closed for today")

    async with talking(server, era) as peer:
        found = await refusal(peer, "x://secret")
        assert (found.code, found.message, found.data) == (-32603, "Internal server error", None)
        found = await refusal(peer, "x://plain")
        assert (found.code, found.message, found.data) == (-32602, "Not on Sundays", {"day": "Sunday"})
        assert (await refusal(peer, "x://internal")).message == "Closed for today"
    assert "the password is 1234" in caplog.text


async def test_a_resource_may_ask_and_is_read_in_two_rounds() -> None:
    """MRTR-01."""
    server = Server("s")

    @server.resource("x://{room}/guest")
    async def guest(ctx: Context, room: str) -> str:
        return f"{await ctx.elicit('Your name?', str, key='name')} in {room}"

    async with talking(server, "2026", elicitation={}) as peer:
        question = await peer.result("resources/read", uri="x://7/guest")
        assert question["resultType"] == "input_required"
        answers = {"name": {"action": "accept", "content": {"value": "Ann"}}}
        answer = await peer.result(
            "resources/read", uri="x://7/guest", inputResponses=answers, requestState=question["requestState"]
        )
    assert answer["contents"][0]["text"] == "Ann in 7"


@both_eras
async def test_variables_are_completed_and_only_those(era: str) -> None:
    """COMP-05."""
    server = Server("s")

    @server.resource("x://{country}/{city}")
    def place(country: str, city: str) -> str:
        return country + city

    @place.complete("city")
    def cities(value: str, chosen: dict[str, str]) -> list[str]:
        return [name for name in {"no": ["Oslo", "Odda"]}.get(chosen.get("country", ""), []) if name.startswith(value)]

    async with talking(server, era) as peer:

        async def complete(uri: str, name: str, **more: Any) -> Any:
            reference = {"type": "ref/resource", "uri": uri}
            asked = {"name": name, "value": "Os"}
            return (await peer.result("completion/complete", ref=reference, argument=asked, **more))["completion"]

        chosen = {"context": {"arguments": {"country": "no"}}}
        assert (await complete("x://{country}/{city}", "city", **chosen))["values"] == ["Oslo"]
        assert (await complete("x://{country}/{city}", "city"))["values"] == []
        assert (await complete("x://{country}/{city}", "country"))["values"] == []
        with pytest.raises(Refusal, match="Unknown resource template: x://else") as caught:
            await complete("x://else", "city")
        assert caught.value.code == -32602


async def test_a_registered_function_can_still_be_called() -> None:
    server = Server("s")

    @server.resource("x://{v}")
    def doubled(v: str) -> str:
        return v * 2

    assert doubled("a") == "aa"
    with pytest.raises(DefinitionError, match="doubled has no argument 'w' to complete"):
        doubled.complete("w")


# ---------------------------------------------------------------- watching


@both_eras
async def test_what_this_server_has_may_be_watched_and_nothing_else(era: str) -> None:
    """SUB-04, SUB-15: without a hook, known here."""
    server = Server("s")
    server.resource("x://static", name="s")(lambda: "text")

    @server.resource("x://{number}/b")
    def numbered(number: int) -> str:
        return "number"

    known = ["x://static", "x://1/b"]
    unknown = ["x://else", "x://one/b", "y://static", "not a uri", "x://../b"]
    async with talking(server, era) as peer:
        if era == "2026":
            await peer.begin("subscriptions/listen", notifications={"resourceSubscriptions": known + unknown})
            granted = await peer.hear("notifications/subscriptions/acknowledged")
            assert granted["notifications"]["resourceSubscriptions"] == known
        else:
            for uri in known:
                assert await peer.result("resources/subscribe", uri=uri) == {}
            for uri in unknown:
                with pytest.raises(Refusal) as caught:
                    await peer.result("resources/subscribe", uri=uri)
                assert caught.value.code == -32602
        server.notify(Changed("resource", "x://else"))
        server.notify(Changed("resource", "x://1/b"))
        assert (await peer.hear("notifications/resources/updated"))["uri"] == "x://1/b"
        if era == "2025":
            assert await peer.result("resources/unsubscribe", uri="x://1/b") == {}
            server.notify(Changed("resource", "x://1/b"))
            server.notify(Changed("resource", "x://static"))
            assert (await peer.hear("notifications/resources/updated"))["uri"] == "x://static"


async def test_a_hook_decides_alone_what_may_be_watched() -> None:
    server = Server("s", authorize_subscription=lambda ctx, uri: uri == "x://elsewhere")
    server.resource("x://static", name="s")(lambda: "text")
    async with talking(server, "2025") as peer:
        assert await peer.result("resources/subscribe", uri="x://elsewhere") == {}
        with pytest.raises(Refusal):
            await peer.result("resources/subscribe", uri="x://static")


# ---------------------------------------------------------------- mistakes of authors


def plain() -> str:
    return "text"


def of_city(city: str) -> str:
    return city


def of_list(city: list[str]) -> str:
    return city[0]


def of_any(city: Any) -> str:
    return str(city)


@pytest.mark.parametrize(
    ("uri", "function", "options", "words"),
    [
        ("", plain, {}, "needs a scheme"),
        ("weather now", plain, {}, "'resource://weather now' is not a URI: percent-encode"),
        ("x://a b", plain, {}, "'x://a b' is not a URI: percent-encode"),
        ("x://größe", plain, {}, "is not a URI: percent-encode"),
        ("x://%zz", plain, {}, "is not a URI: percent-encode"),
        (plain, plain, {}, 'write @server.resource("scheme://path")'),
        ("x://{a", plain, {}, "the brace at character 5 is never closed"),
        ("x://{a}{b}", lambda_free, {}, "{a} has no parameter: write `a: str`"),
        ("x://{v}{w}", lambda_free, {}, "{v} and {w} have no text between them"),
        (
            "x://{town}",
            of_city,
            {},
            "parameter `city` has no variable: write {city} into the URI; {town} has no parameter",
        ),
        (
            "x://now",
            of_city,
            {},
            "of_city() at .*test_resources.py:.*`city` has no variable: write {city} into the URI",
        ),
        ("x://{city*}", of_city, {}, r"{city\*} gives a list: annotate `city: list\[str\]`"),
        ("x://{city*}", of_any, {}, r"{city\*} gives a list"),
        ("x://{city}", of_list, {}, r"{city} gives a text, but `city` is a list: write {city\*}"),
        ("x://a", lambda: "text", {}, 'needs a name: add name="…"'),
        ("x://{city}", of_city, {"size": 3}, "whose resources differ in size"),
        ("x://a", plain, {"annotations": {"priority": "high"}}, "annotations: "),
        ("x://a", plain, {"ttl": -1}, "ttl=-1 is not possible"),
        ("x://a", plain, {"scope": "shared"}, "scope='shared' is not possible"),
        ("x://a", plain, {"mimetype": "a/b"}, "has no option 'mimetype': did you mean 'mime_type'?"),
        ("x://a", 3, {}, "3 is not callable"),
    ],
)
def test_a_mistake_is_told_in_one_line_when_the_resource_is_registered(
    uri: Any, function: Any, options: Any, words: str
) -> None:
    """RES-02, RES-03, RES-08."""
    server = Server("s")
    with pytest.raises(
        DefinitionError, match=words.replace("(", r"\(").replace(")", r"\)").replace("{", r"\{")
    ) as caught:
        server.resource(uri, **options)(function)
    assert "\n" not in str(caught.value)
    assert not len(server._resources)


def test_a_uri_is_taken_once() -> None:
    server = Server("s")
    server.resource("x://a")(plain)
    with pytest.raises(DefinitionError, match="There is a resource 'x://a' already"):
        server.resource("x://a")(plain)


async def test_a_uri_without_a_scheme_gets_one(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("files")

    @server.resource("/notes/{name}")
    def note(name: str) -> str:
        return name

    server.resource("a/list", name="list")(lambda: "all")
    assert "'/notes/{name}' has no scheme: offered as 'resource:///notes/{name}'" in caplog.text
    async with Client(server) as client:
        assert [one.uri for one in await client.list_resources()] == ["resource://a/list"]
        assert [one.uri_template for one in await client.list_resource_templates()] == ["resource:///notes/{name}"]
        assert (await client.read_resource("resource:///notes/today")).text == "today"
        server.remove_resource("a/list")
        assert await client.list_resources() == []


async def test_a_parameter_with_a_default_needs_no_variable() -> None:
    """Then no caller can set it."""
    server = Server("notes")

    @server.resource("notes://{name}")
    def note(name: str, limit: int = 3) -> str:
        return f"{name} {limit}"

    async with Client(server) as client:
        assert (await client.read_resource("notes://a")).text == "a 3"
        with pytest.raises(PeerError, match="not found"):
            await client.read_resource("notes://a?limit=5")
