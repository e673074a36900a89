"""Content in words and as files: the right suffix, nothing overwritten, never a place that the server chose."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import (
    AudioContent,
    CallToolResult,
    Client,
    CreateMessageResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    InvalidResponse,
    PromptMessage,
    ReadResourceResult,
    ResourceContents,
    ResourceLink,
    SamplingMessage,
    Server,
    TextContent,
    content_to_text,
    save_content,
    save_contents,
)
from gemel.client.content import suffix_of
from gemel.schema.sampling import ToolResultContent, ToolUseContent

DATA = bytes(range(70))
CODED = base64.b64encode(DATA).decode()
PICTURE = ImageContent(data=CODED, mime_type="image/png")
SOUND = AudioContent(data=CODED, mime_type="audio/wav")


def resource(uri: str, kind: str | None = None, text: str | None = None) -> ResourceContents:
    return ResourceContents(uri=uri, mime_type=kind, text=text, blob=CODED if text is None else None)


# ---------------------------------------------------------------- values


def test_binary_content_gives_its_bytes() -> None:
    assert PICTURE.decoded == SOUND.decoded == resource("x:y").decoded == DATA
    assert resource("x:y", text="Å").decoded == "Å".encode()


@pytest.mark.parametrize("data", ["*", "QQ", "QQ==x", "Å", "Q Q=="])
def test_what_is_no_base64_is_the_servers_fault(data: str) -> None:
    with pytest.raises(InvalidResponse, match="not base64"):
        assert ImageContent(data=data, mime_type="image/png").decoded


@pytest.mark.parametrize(
    ("block", "type"),
    [
        (TextContent(text="x"), "text"),
        (PICTURE, "image"),
        (SOUND, "audio"),
        (ResourceLink(uri="a:b", name="b"), "resource_link"),
        (EmbeddedResource(resource=resource("a:b")), "resource"),
        (ToolUseContent(id="1", name="add", input={}), "tool_use"),
        (ToolResultContent(tool_use_id="1", content=[]), "tool_result"),
    ],
)
def test_blocks_have_their_type_as_on_the_wire(block: Any, type: str) -> None:
    assert block.type == type == msgspec.to_builtins(block)["type"]


def test_messages_and_results_have_a_text() -> None:
    text = TextContent(text="one")
    assert PromptMessage(role="user", content=text).text == "one"
    assert PromptMessage(role="user", content=PICTURE).text == ""
    assert SamplingMessage(role="user", content=[text, PICTURE, TextContent(text="two")]).text == "one\ntwo"
    assert CreateMessageResult(role="assistant", content=text, model="m").text == "one"
    assert CallToolResult(content=[text, PICTURE]).text == "one"
    assert (
        ReadResourceResult(contents=[resource("a:b", text="x"), resource("a:c"), resource("a:d", text="y")]).text
        == "xy"
    )


def test_everything_can_be_said_in_words() -> None:
    use = ToolUseContent(id="1", name="add", input={"a": 1})
    said = ToolResultContent(tool_use_id="1", content=[TextContent(text="2")])
    link = ResourceLink(uri="file:///a", name="a", title="A")
    blocks: list[Any] = [
        TextContent(text="hello"),
        PICTURE,
        SOUND,
        EmbeddedResource(resource=resource("file:///a.txt", text="inside")),
        resource("file:///a.bin"),
        link,
        use,
        said,
    ]
    assert [content_to_text(block) for block in blocks] == [
        "hello",
        "[image/png, 70 bytes]",
        "[audio/wav, 70 bytes]",
        "inside",
        "[data, 70 bytes, file:///a.bin]",
        "[link to file:///a, A]",
        '[calls add with {"a":1}]',
        "[1 answered: 2]",
    ]
    prompt = GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text="hi"))])
    assert content_to_text(prompt) == "user: hi"
    assert content_to_text(CallToolResult(content=[], structured_content={"a": 1})) == '{"a":1}'


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        ("image/png", ".png"),
        ("IMAGE/JPEG", ".jpg"),
        ("text/plain; charset=utf-8", ".txt"),
        ("text/x-made-up", ".txt"),
        ("application/x-made-up", ".bin"),
        ("../../etc", ".bin"),
        (None, ".bin"),
    ],
)
def test_a_mime_type_has_a_suffix(kind: str | None, suffix: str) -> None:
    assert suffix_of(kind) == suffix


def test_a_file_gets_the_suffix_of_its_kind_unless_it_has_one(tmp_path: Path) -> None:
    assert save_content(PICTURE, tmp_path / "chart") == tmp_path / "chart.png"
    assert save_content(PICTURE, str(tmp_path / "chart.data")) == tmp_path / "chart.data"
    assert (tmp_path / "chart.png").read_bytes() == (tmp_path / "chart.data").read_bytes() == DATA
    assert save_content(TextContent(text="Å"), tmp_path / "note").read_text(encoding="utf-8") == "Å"


def test_nothing_is_overwritten_unless_told(tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_text("mine")
    with pytest.raises(FileExistsError):
        save_content(PICTURE, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_text() == "mine"
    save_content(PICTURE, tmp_path / "chart.png", overwrite=True)
    assert (tmp_path / "chart.png").read_bytes() == DATA


def test_in_a_directory_files_are_named_and_numbered(tmp_path: Path) -> None:
    result = CallToolResult(
        content=[
            TextContent(text="two pictures"),
            PICTURE,
            PICTURE,
            SOUND,
            EmbeddedResource(resource=resource("file:///reports/May 2031.pdf?x=1", "application/pdf")),
            EmbeddedResource(resource=resource("db://rows/7", "application/json", "{}")),
            ResourceLink(uri="file:///later", name="later"),
        ]
    )
    saved = save_contents(result, tmp_path / "new" / "out")
    names = ["image.png", "image-2.png", "audio.wav", "May_2031.pdf", "7.json"]
    assert [path.relative_to(tmp_path / "new" / "out").as_posix() for path in saved] == names
    assert [path.name for path in save_contents(result, tmp_path / "new" / "out")][:2] == ["image-3.png", "image-4.png"]


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///../../etc/passwd", "passwd.bin"),
        ("file:///..", "content.bin"),
        ("x:/%2e%2e%2fetc%2fpasswd", "etc_passwd.bin"),
        ("x:/..\\..\\boot.ini", "boot.ini"),
        ("x:/.bashrc", "bashrc.bin"),
        ("x:/a\x00b\x1b[2J", "a_b_2J.bin"),
        ("x:/nul.txt", "content.txt"),
        ("x:/COM1", "content.bin"),
        ("", "content.bin"),
        ("x:/" + "a" * 500 + ".tar", "a" * 100 + ".tar"),
    ],
)
def test_a_servers_name_never_leads_elsewhere(tmp_path: Path, uri: str, name: str) -> None:
    folder = tmp_path / "out"
    assert save_contents([resource(uri)], folder) == [folder / name]
    assert os.listdir(tmp_path) == ["out"]


@given(uri=st.text(max_size=40), kind=st.none() | st.text(max_size=20))
def test_whatever_the_uri_the_file_stands_where_the_user_said(
    tmp_path_factory: Any, uri: str, kind: str | None
) -> None:
    folder = tmp_path_factory.mktemp("saved")
    (path,) = save_contents([resource(uri, kind)], folder)
    assert path.parent == folder
    assert path.read_bytes() == DATA


def test_a_link_that_stands_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / "image.png").symlink_to(tmp_path / "target")
    (out / "image-2.png").symlink_to(tmp_path / "nowhere")
    assert save_contents([PICTURE], out) == [out / "image-3.png"]
    assert (tmp_path / "target").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_link_is_read_before_it_is_saved(tmp_path: Path) -> None:
    link: Any = ResourceLink(uri="file:///a", name="a")
    with pytest.raises(TypeError, match=r"client\.read_resource"):
        save_content(link, tmp_path / "a")


async def test_what_a_result_links_to_is_read_by_the_link_itself(tmp_path: Path) -> None:
    server = Server("files")

    @server.resource("files://notes", mime_type="text/markdown")
    def notes() -> str:
        return "# Notes"

    @server.tool
    def find() -> ResourceLink:
        """Where it is."""
        return ResourceLink(uri="files://notes", name="notes")

    async with Client(server) as client:
        (link,) = (await client.call_tool("find")).content
        assert isinstance(link, ResourceLink)
        found = await client.read_resource(link)
        assert found.text == "# Notes"
        assert (await client.read_resource((await client.list_resources())[0])).text == "# Notes"
    assert [path.name for path in save_contents(found, tmp_path)] == ["notes.md"]
