"""A block that the peer's revision doesn't know is told in text: nothing goes missing without a word."""

import json
from typing import Any

import msgspec
import pytest

from gemel import (
    Annotations,
    AudioContent,
    CallToolResult,
    CreateMessageParams,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    SamplingMessage,
    TextContent,
)
from gemel.protocol.revisions.adapt import shape
from gemel.schema.sampling import ToolResultContent, ToolUseContent
from tests.support import FIRST, V2025_03, V2025_06

TEXT = TextContent(text="see there")
IMAGE = ImageContent(data="aGk=", mime_type="image/png")
USE = ToolUseContent(id="1", name="forecast", input={"city": "Oslo"})
LINK = ResourceLink(uri="x:y", name="a")
PAGE = EmbeddedResource(resource=ResourceContents(uri="x:t", text="page"))
BLOB = EmbeddedResource(resource=ResourceContents(uri="x:b", blob="aGk="))
ANSWER = ToolResultContent(tool_use_id="1", content=[TEXT, IMAGE, LINK, PAGE, BLOB], structured_content=[1])


def wire(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize("revision", [FIRST, V2025_03])
def test_a_resource_link_becomes_text_for_the_first_two_revisions(revision: str) -> None:
    """CONT-03."""
    annotations = Annotations(audience=["user"], last_modified="2025-01-01T00:00:00Z")
    link = ResourceLink(
        uri="file:///a.md",
        name="a",
        title="The A",
        mime_type="text/markdown",
        description="First.",
        annotations=annotations,
    )
    expected = {
        "type": "text",
        "text": "The A: file:///a.md (text/markdown)\nFirst.",
        "annotations": {"audience": ["user"]},
    }
    assert wire(shape(CallToolResult(content=[TEXT, link]), revision))["content"] == [wire(TEXT), expected]
    prompt = GetPromptResult(messages=[PromptMessage(role="user", content=link)])
    assert wire(shape(prompt, revision))["messages"] == [{"role": "user", "content": expected}]


def test_a_resource_link_of_few_words_becomes_short_text() -> None:
    assert shape(ResourceLink(uri="x:y", name="a"), FIRST) == TextContent(text="a: x:y")


def test_audio_is_said_to_be_left_out_for_the_first_revision() -> None:
    """CONT-02: never sent there, and not dropped without a word."""
    audio = AudioContent(data="aGk=", mime_type="audio/wav")
    (block,) = shape(CallToolResult(content=[audio]), FIRST).content
    assert isinstance(block, TextContent)
    assert "audio/wav" in block.text
    assert "left out" in block.text
    assert shape(CallToolResult(content=[audio]), V2025_03).content == [audio]


@pytest.mark.parametrize("revision", [FIRST, V2025_03, V2025_06])
def test_tool_uses_and_results_are_told_in_text_before_there_were_any(revision: str) -> None:
    """SAMP-04: a history with tools can still be shown to a model."""
    params = CreateMessageParams(
        messages=[SamplingMessage(role="assistant", content=USE), SamplingMessage(role="user", content=[ANSWER])],
        max_tokens=9,
    )
    use, result = (message["content"]["text"] for message in wire(shape(params, revision))["messages"])
    assert use == '[Call of tool forecast: {"city":"Oslo"}]'
    assert result.splitlines() == [
        "[Result of a tool]",
        "see there",
        "[image/png is left out: it isn't text]",
        "a: x:y",
        "page",
        "[x:b is left out: it isn't text]",
    ]


def test_a_failed_tool_is_told_as_a_failure() -> None:
    failed = ToolResultContent(tool_use_id="1", content=[], is_error=True)
    assert shape(failed, FIRST).text.startswith("[Failure of a tool]")
