"""Prompts: what is listed, what arguments become, what messages come back, and how they come and go."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any

import pytest

from gemel import (
    AudioContent,
    Context,
    DefinitionError,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Message,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    Server,
    TextContent,
)
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Mood(enum.Enum):
    GLAD = "glad"
    GRIM = "grim"


def library() -> Server[Any]:
    server: Server[Any] = Server("library")

    @server.prompt(title="Pack", icons=["https://example.com/bag.png"], meta={"com.example/x": 1})
    def pack(city: str, day: date, days: int = 3, mood: Mood = Mood.GLAD, extra: list[str] | None = None) -> str:
        """What to pack.

        Args:
            city: where to
        """
        return f"{city} {day.isoformat()} {days!r} {mood.name} {extra!r}"

    @server.prompt("small-talk", description="Talk.")
    async def talk(ctx: Context, about: Annotated[str, "what it is about"] = "the weather") -> list[str]:
        return [f"Nice {about}", ctx.protocol_version]

    return server


@both_eras
async def test_a_prompt_is_listed_with_its_arguments(era: Era) -> None:
    """PRM-02: in the order of registration, whoever asks."""
    async with BareEnd(library(), era) as end:
        first, second = (await end.ask("prompts/list"))["prompts"]
    assert first == {
        "name": "pack",
        "title": "Pack",
        "description": "What to pack.",
        "arguments": [
            {"name": "city", "description": "where to", "required": True},
            {"name": "day", "required": True},
            {"name": "days"},
            {"name": "mood"},
            {"name": "extra"},
        ],
        "icons": [{"src": "https://example.com/bag.png"}],
        "_meta": {"com.example/x": 1},
    }
    assert second == {
        "name": "small-talk",
        "description": "Talk.",
        "arguments": [{"name": "about", "description": "what it is about"}],
    }


async def got(end: BareEnd, name: str, **arguments: str) -> list[Any]:
    result = await end.ask("prompts/get", {"name": name, "arguments": arguments})
    return [(one["role"], one["content"]) for one in result["messages"]]


@both_eras
async def test_texts_become_what_the_annotations_say(era: Era) -> None:
    """The protocol carries strings."""
    async with BareEnd(library(), era) as end:
        ((role, content),) = await got(end, "pack", city="7", day="2026-07-28", days="5", mood="grim", extra='["hat"]')
        assert (role, content) == ("user", {"type": "text", "text": "7 2026-07-28 5 GRIM ['hat']"})
        assert len(await got(end, "small-talk")) == 2


@both_eras
async def test_wrong_arguments_are_one_error_that_names_all_of_them(era: Era) -> None:
    """PRM-05."""
    async with BareEnd(library(), era) as end:
        error = await end.refusal("prompts/get", {"name": "pack", "arguments": {"days": "many", "hat": "yes"}})
        assert error["code"] == -32602
        assert error["message"] == (
            "Invalid arguments for prompt 'pack': city: missing (required string); day: missing (required date string like "
            '"2026-01-31"); days: expected integer, got string "many"; hat: unknown argument; known: city, day, days, mood, '
            "extra"
        )
        error = await end.refusal("prompts/get", {"name": "pck"})
        assert (error["code"], error["message"]) == (-32602, "Unknown prompt: pck. Did you mean 'pack'?")
        error = await end.refusal("prompts/get", {"name": "pack", "arguments": {"city": 7}})
        assert error["code"] == -32602


LINK = ResourceLink(uri="book://1", name="one")
BOOK = EmbeddedResource(resource=ResourceContents(uri="book://1", text="Once"))
RETURNED: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "a text": (lambda: "hi", [("user", "text")]),
    "texts": (lambda: ["a", "b"], [("user", "text"), ("user", "text")]),
    "a picture": (lambda: ImageContent(data="eA==", mime_type="image/png"), [("user", "image")]),
    "a sound": (lambda: AudioContent(data="eA==", mime_type="audio/wav"), [("user", "audio")]),
    "a link": (lambda: LINK, [("user", "resource_link")]),
    "a resource": (lambda: BOOK, [("user", "resource")]),
    "a message": (lambda: Message("x", role="assistant"), [("assistant", "text")]),
    "messages": (lambda: [Message("x"), Message(BOOK, "assistant")], [("user", "text"), ("assistant", "resource")]),
    "a wire message": (lambda: PromptMessage(role="assistant", content=TextContent(text="x")), [("assistant", "text")]),
    "all together": (
        lambda: ["a", PromptMessage(role="assistant", content=BOOK), LINK],
        [("user", "text"), ("assistant", "resource"), ("user", "resource_link")],
    ),
    "a tuple": (lambda: ("a", LINK), [("user", "text"), ("user", "resource_link")]),
    "a result": (
        lambda: GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text="x"))]),
        [("user", "text")],
    ),
}


@both_eras
@pytest.mark.parametrize("what", RETURNED)
async def test_a_function_may_return(what: str, era: Era) -> None:
    """PRM-04: messages of every kind of content."""
    server: Server[Any] = Server("library")
    function, expected = RETURNED[what]
    server.prompt("brief")(function)
    async with BareEnd(server, era) as end:
        assert [(role, content["type"]) for role, content in await got(end, "brief")] == expected


@pytest.mark.parametrize(("value", "kind"), [(7, "int"), ({"a": 1}, "dict"), ([3], "int"), (object(), "object")])
async def test_anything_else_is_the_authors_mistake(value: Any, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """ERR-05."""
    server: Server[Any] = Server("library")
    server.prompt("brief")(lambda: value)
    async with BareEnd(server) as end:
        assert (await end.refusal("prompts/get", {"name": "brief"}))["code"] == -32603
    assert (
        f"Prompt 'brief' returned {kind}: return a string, a content block, a Message, or a list of these"
        in caplog.text
    )


async def test_messages_can_be_annotated() -> None:
    server: Server[Any] = Server("library")

    @server.prompt
    def brief() -> list[Message]:
        return [Message("x")]

    async with BareEnd(server) as end:
        assert [role for role, _ in await got(end, "brief")] == ["user"]


def test_a_message_has_a_role_and_one_content() -> None:
    with pytest.raises(DefinitionError, match='role=\'system\' is not possible: use "user" or "assistant"'):
        Message("x", role="system")  # type: ignore[arg-type]  # the mistake
    for content in (7, None, ["a"]):
        with pytest.raises(DefinitionError, match="use a text, a content block, or an Image"):
            Message(content)  # type: ignore[arg-type]  # the mistake


def test_a_generator_is_told_at_registration() -> None:
    server: Server[Any] = Server("library")

    def words() -> Iterator[str]:
        yield "a"

    with pytest.raises(DefinitionError, match="is a generator, but a call has one result"):
        server.prompt(words)


@both_eras
async def test_prompts_come_and_go_while_clients_are_connected(era: Era) -> None:
    """SUB-14: adding and removing are told by themselves, and the order stays that of registration."""
    server = library()
    async with BareEnd(server, era) as end:
        await end.listen("promptsListChanged")
        server.prompt("brief")(lambda: "x")
        await end.wait_for("notifications/prompts/list_changed")
        assert await end.names("prompts") == ["pack", "small-talk", "brief"]
        end.heard.clear()
        server.remove_prompt("small-talk")
        await end.wait_for("notifications/prompts/list_changed")
        assert await end.names("prompts") == ["pack", "brief"]
        assert "Unknown prompt" in (await end.refusal("prompts/get", {"name": "small-talk"}))["message"]
        with pytest.raises(KeyError):
            server.remove_prompt("small-talk")
