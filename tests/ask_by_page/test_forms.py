"""Each kind of form field as HTML and back: defaults, choices, what is wrong, hostile texts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import httpx
import msgspec
import pytest
from msgspec import Meta

from gemel import Context, Server, Titled
from tests.ask_by_page.places import Place, local
from tests.ask_by_page.visitor import Page


class Asked(NamedTuple):
    """What the tool was answered."""

    answers: list[Any]


def asking(form: Any, answers: list[Any]) -> Any:
    def make(**options: Any) -> Server[Any]:
        server: Server[Any] = Server("forms", **options)

        @server.tool
        async def fill(ctx: Context) -> str:
            """Ask for a form."""
            answers.append(await ctx.elicit("Please fill this in", form))
            return "filled in"

        return server

    return make


def schema(field: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    return {"type": "object", "properties": {"it": field}, **({"required": ["it"]} if required else {})}


async def open_form(here: Place) -> Page:
    return await here.browser.open(here.link(await here.call("fill")))


KINDS: list[Any] = [
    # field, what a person writes, the value
    ({"type": "string"}, "a & b", "a & b"),
    ({"type": "string", "title": "it", "maxLength": 500}, "two\nlines", "two\nlines"),
    ({"type": "string", "format": "date"}, "2026-11-29", "2026-11-29"),
    ({"type": "string", "format": "date-time"}, "2026-11-29T12:30", "2026-11-29T12:30:00Z"),
    ({"type": "string", "format": "date-time"}, "2026-11-29T12:30:00+02:00", "2026-11-29T12:30:00+02:00"),
    ({"type": "string", "format": "email"}, " ann@example.com ", "ann@example.com"),
    ({"type": "string", "format": "uri"}, "https://example.com/a", "https://example.com/a"),
    ({"type": "integer"}, "-3", -3),
    ({"type": "integer"}, "3.0", 3),
    ({"type": "number"}, "2.5", 2.5),
    ({"type": "number"}, "7", 7),
    ({"type": "boolean"}, True, True),
    ({"type": "boolean"}, False, False),
    ({"type": "string", "enum": ["a", "b"]}, "b", "b"),
    ({"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]}, "Second", "b"),
    ({"type": "string", "oneOf": [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]}, "First", "a"),
    ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, ["a", "c"], ["a", "c"]),
    ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "First"}]}}, ["First"], ["a"]),
    ({"enum": [1, None, "x"]}, "null", None),
    ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
]


@pytest.mark.parametrize(("field", "written", "value"), KINDS)
async def test_each_kind_of_field_becomes_its_value(field: Any, written: Any, value: Any) -> None:
    answers: list[Any] = []
    async with local(asking(schema(field), answers), "2026") as here:
        done = await here.browser.send(await open_form(here), {"it": written})
        assert done.status == 200, done.text
        assert (await here.call("fill")).text == "filled in"
    assert answers == [{"it": value}]


WRONG: list[Any] = [
    ({"type": "string"}, "", "Fill in"),
    ({"type": "string", "minLength": 5}, "abc", "Not possible"),
    ({"type": "string", "maxLength": 2}, "abc", "Not possible"),
    ({"type": "string", "format": "date"}, "tomorrow", "A date"),
    ({"type": "string", "format": "date-time"}, "noon", "Date and time"),
    ({"type": "string", "format": "email"}, "ann", "e-mail"),
    ({"type": "string", "format": "uri"}, "example", "An address"),
    ({"type": "integer"}, "2.5", "whole number"),
    ({"type": "integer"}, "many", "not a number"),
    ({"type": "integer", "minimum": 1, "maximum": 9}, "10", "Not possible"),
    ({"type": "number"}, "NaN", "not a number"),
    ({"type": "number"}, "1e999", "not a number"),
    ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, ["a"], "Not possible"),
    ({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}, ["a", "b"], "Not possible"),
    ({"type": "object"}, "{", "not JSON"),
]


@pytest.mark.parametrize(("field", "written", "text"), WRONG)
async def test_what_is_wrong_is_shown_with_what_was_written(field: Any, written: Any, text: str) -> None:
    answers: list[Any] = []
    async with local(asking(schema(field), answers), "2025") as here:
        link = here.link(await here.call("fill"))
        page = await here.browser.send(await here.browser.open(link), {"it": written})
        assert page.status == 422
        assert text in page.text
        assert 'aria-invalid="true"' in page.html
        if isinstance(written, list):
            ticked = [one.label.strip() for one in page.controls if one.checked]
            assert ticked == written
        else:
            assert page.control("it").value == written
        assert "Please fill this in" in (await here.call("fill")).text
    assert answers == []


@pytest.mark.parametrize("number", ["2", "-1", "x", "1" * 50])
async def test_a_choice_that_is_not_offered_is_refused(number: str) -> None:
    async with local(asking(schema({"type": "string", "enum": ["a", "b"]}), []), "2025") as here:
        page = await open_form(here)
        pairs = {"f0": number, "secret": next(one.value for one in page.controls if one.name == "secret")}
        kind = {"content-type": "application/x-www-form-urlencoded"}
        body = str(httpx.QueryParams({**pairs, "action": "accept"}))
        reply = await here.browser.web.post(page.url, content=body, headers=kind)
        assert reply.status_code == 422
        assert "not one of the choices" in reply.text


async def test_fields_that_may_be_left_out_and_defaults() -> None:
    fields = {
        "name": {"type": "string", "default": 'A "B" <C>'},
        "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
        "count": {"type": "integer", "default": 3},
        "gift": {"type": "boolean", "default": True},
        "fast": {"type": "boolean"},
        "note": {"type": "string"},
        "when": {"type": "string", "format": "date-time", "default": "2026-11-29T12:00:00+01:00"},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "default": ["y"]},
        "more": {"type": "array", "items": {"enum": ["x", "y"]}},
    }
    answers: list[Any] = []
    async with local(asking({"type": "object", "properties": fields}, answers), "2026") as here:
        page = await open_form(here)
        assert page.control("name").value == 'A "B" <C>'
        assert page.control("count").attributes["type"] == "number"
        assert (await here.browser.send(page)).status == 200
        await here.call("fill")
    assert answers == [
        {
            "name": 'A "B" <C>',
            "size": "m",
            "count": 3,
            "gift": True,
            "when": "2026-11-29T11:00:00Z",
            "tags": ["y"],
        }
    ]


class Wishes(msgspec.Struct):
    seat: Annotated[Literal["w", "a"], Titled(w="At the window", a="On the aisle")]
    bags: Annotated[int, Meta(ge=0, le=2, description="Two at most")]
    meal: bool = False
    extras: list[Literal["wifi", "lounge"]] = []
    note: str | None = None


async def test_a_form_of_a_type_becomes_a_value_of_it() -> None:
    answers: list[Any] = []
    async with local(asking(Wishes, answers), "2025") as here:
        page = await open_form(here)
        assert "Two at most" in page.text
        assert set(page.control("seat").options) == {"Choose one", "At the window", "On the aisle"}
        given = {"seat": "On the aisle", "bags": "1", "meal": True, "extras": ["wifi"]}
        await here.browser.send(page, given)
        await here.call("fill")
    assert answers == [Wishes("a", 1, meal=True, extras=["wifi"])]


HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)> \u202e\u200b</textarea></select>&lt;'


async def test_texts_of_a_schema_and_of_a_model_are_texts() -> None:
    form = {
        "type": "object",
        "properties": {
            HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE, "default": HOSTILE},
            "long": {"type": "string", "maxLength": 9999, "default": HOSTILE},
            "choice": {"type": "string", "enum": [HOSTILE, "b"], "default": HOSTILE},
            "several": {"type": "array", "items": {"anyOf": [{"const": HOSTILE, "title": HOSTILE}]}},
        },
    }

    def make(**options: Any) -> Server[Any]:
        server: Server[Any] = Server(HOSTILE, **options)

        @server.tool
        async def fill(ctx: Context, note: str) -> str:
            """Ask with texts of others."""
            await ctx.elicit(note, form)
            return "filled in"

        return server

    async with local(make, "2026") as here:
        page = await here.browser.open(here.link(await here.call("fill", {"note": HOSTILE})))
        tags = {tag for tag, _ in page.tags}
        assert not {"script", "img"} & tags
        assert not [name for _, given in page.tags for name in given if name.startswith("on")]
        assert "\u202e" not in page.text
        assert "\\u202e" in page.text
        assert {one.name for one in page.controls} == {"f0", "f1", "f2", "f3", "secret"}
        assert (await here.browser.send(page)).status == 200
        assert (await here.call("fill", {"note": HOSTILE})).text == "filled in"


@pytest.mark.parametrize("odd", [{"type": "object"}, {"type": "object", "properties": {"a": True}}])
async def test_schemas_that_are_odd_have_a_page(odd: Any) -> None:
    async with local(asking(odd, []), "2026") as here:
        assert (await open_form(here)).status == 200
