"""What can't be listed is told where it is written: one wrong value would cost clients the whole list."""

from __future__ import annotations

import uuid
from datetime import date
from typing import Any

import pytest

from gemel import Client, DefinitionError, Icon, Server

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"title": 3}, "Expected `str | null`, got `int` - at `$.title`"),
    ({"title": b"x"}, "Expected `str | null`, got `bytes` - at `$.title`"),
    ({"description": uuid.UUID(int=1)}, "Expected `str | null`, got `uuid` - at `$.description`"),
    ({"icons": [1]}, "1 is not an icon: "),
    ({"icons": [{"url": "a"}]}, "{'url': 'a'} is not an icon: Object missing required field `src`"),
    ({"icons": ["icon.png"]}, "'icon.png' is not the URL of an icon: write https://… or data:…"),
    ({"icons": 5}, "icons=5 is not a list: "),
    ({"icons": "https://a.example"}, "icons='https://a.example' is one string: "),
    ({"meta": 5}, "Expected `object | null`, got `int` - at `$._meta`"),
    ({"meta": {"com.example/a": object()}}, "object has no JSON form"),
    ({"tags": 5}, "tags=5 of "),
]


def register(kind: str, options: dict[str, Any]) -> Server[Any]:
    server: Server[Any] = Server("x")
    decorate: Any = getattr(server, kind)
    decorate("a://b" if kind == "resource" else "b", **options)(lambda: "text")
    return server


@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
@pytest.mark.parametrize(("options", "said"), WRONG, ids=lambda value: str(value)[:30])
def test_a_value_of_the_wrong_type_is_told_at_registration(kind: str, options: dict[str, Any], said: str) -> None:
    named = {"name": "b"} if kind == "resource" else {}
    with pytest.raises(DefinitionError) as caught:
        register(kind, {**named, **options})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("tool", {"annotations": 5}),
        ("tool", {"input_schema": 5}),
        ("tool", {"concurrency": "two"}),
        ("tool", {"concurrency": 1, "waiting": "two"}),
        ("resource", {"name": "b", "size": "x"}),
        ("resource", {"name": "b", "mime_type": 5}),
        ("resource", {"name": 5}),
        ("resource", {"name": "b", "annotations": 5}),
    ],
)
def test_so_are_the_options_of_each_kind(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        register(kind, options)


@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_a_name_is_a_text(kind: str) -> None:
    decorate: Any = getattr(Server("x"), kind)
    with pytest.raises(DefinitionError):
        decorate(name=5)(lambda: "text")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "A server needs a name: "),
        ({"version": 1}, "version=1 is not possible: write a text"),
        ({"version": None}, "version=None is not possible: write a text"),
        ({"title": 3}, "title=3 is not possible: write a text, or None"),
        ({"website_url": 5}, "website_url=5 is not possible: write a text, or None"),
        ({"website_url": "example.com"}, "website_url='example.com' is not an address: write https://…"),
        ({"icons": [1]}, "1 is not an icon: "),
        ({"instructions": 5}, "instructions=5 is not possible: write a text, or None"),
        ({"limits": None}, "limits=None is not possible: write limits=Limits(…)"),
        ({"eras": None}, "eras=None is not possible: "),
        ({"eras": 2025}, "eras=2025 is not possible: "),
        ({"eras": ()}, "eras=() is not possible: "),
    ],
)
def test_a_server_is_made_of_what_clients_can_read(options: dict[str, Any], said: str) -> None:
    """Otherwise no client would learn who it is, or connect at all."""
    name = options.pop("name", "x")
    with pytest.raises(DefinitionError) as caught:
        Server(name, **options)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_icons_are_addresses_or_icons_everywhere(era: Any) -> None:
    icons: list[Any] = [
        "https://a.example/i.png",
        Icon(src="data:,b", sizes=["1x1"]),
        {"src": "https://c", "mimeType": "image/png"},
    ]
    expected = [
        Icon(src="https://a.example/i.png"),
        Icon(src="data:,b", sizes=["1x1"]),
        Icon(src="https://c", mime_type="image/png"),
    ]
    server: Server[Any] = Server("x", icons=icons)
    server.tool("a", icons=icons)(lambda: "x")
    async with Client(server, era=era) as client:
        assert client.server_info is not None
        assert client.server_info.icons == expected
        assert (await client.list_tools())[0].icons == expected


async def test_whatever_json_can_say_may_stand_in_meta() -> None:
    server: Server[Any] = Server("x")
    given = {"com.example/when": date(2026, 7, 28), "com.example/who": uuid.UUID(int=1), "com.example/set": {1}}
    server.tool("a", meta=given)(lambda: "x")
    async with Client(server) as client:
        meta = (await client.list_tools())[0].meta
    assert meta == {
        "com.example/when": "2026-07-28",
        "com.example/who": "00000000-0000-0000-0000-000000000001",
        "com.example/set": [1],
    }


async def test_one_era_twice_is_that_era_alone() -> None:
    server: Server[Any] = Server("x", eras=("2025", "2025"))
    async with Client(server) as client:
        assert client.era == "2025"
