"""Pictures, sounds and files as results of tools and prompts."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from gemel import Annotations, Audio, CallToolResult, DefinitionError, File, Image, Message, Server, TextContent
from gemel.server.features.content import guess_mime_type, is_text_type
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@both_eras
async def test_a_tool_returns_media_from_bytes_and_paths(era: Era, tmp_path: Path) -> None:
    """CONT-01, CONT-02, CONT-04."""
    (tmp_path / "chart.png").write_bytes(PNG)
    (tmp_path / "übersicht 1.csv").write_text("a,b\n", encoding="utf-8")
    server: Server[Any] = Server("media")

    @server.tool
    async def picture() -> Image:
        return Image(tmp_path / "chart.png", annotations=Annotations(priority=1.0), meta={"com.example/x": 1})

    @server.tool
    def sound() -> Audio:
        return Audio(data=WAV)

    @server.tool
    async def several() -> list[Image | File | str]:
        return ["Two:", Image(data=PNG, format="png"), File(str(tmp_path / "übersicht 1.csv"))]

    @server.tool
    async def report() -> File:
        return File(data=b"%PDF-", name="report.pdf")

    async with BareEnd(server, era) as end:
        picture_block = {
            "type": "image",
            "data": coded(PNG),
            "mimeType": "image/png",
            "annotations": {"priority": 1.0},
            "_meta": {"com.example/x": 1},
        }
        assert (await end.call_tool("picture"))["content"] == [picture_block]
        assert (await end.call_tool("sound"))["content"] == [
            {"type": "audio", "data": coded(WAV), "mimeType": "audio/wav"}
        ]
        text, image, file = (await end.call_tool("several"))["content"]
        assert text == {"type": "text", "text": "Two:"}
        assert image["mimeType"] == "image/png"
        assert file["resource"] == {
            "uri": "file:///%C3%BCbersicht%201.csv",
            "mimeType": "text/csv",
            "text": "a,b\n",
        }
        (pdf,) = (await end.call_tool("report"))["content"]
        assert pdf["resource"] == {
            "uri": "file:///report.pdf",
            "mimeType": "application/pdf",
            "blob": coded(b"%PDF-"),
        }
        for tool in (await end.ask("tools/list"))["tools"]:
            assert "outputSchema" not in tool


async def test_media_in_prompts() -> None:
    server: Server[Any] = Server("media")

    @server.prompt
    async def look() -> list[Any]:
        return ["Look:", Image(data=PNG), Message("I see", role="assistant")]

    async with BareEnd(server) as end:
        messages = (await end.ask("prompts/get", {"name": "look"}))["messages"]
        assert [one["content"]["type"] for one in messages] == ["text", "image", "text"]
        assert [one["role"] for one in messages] == ["user", "user", "assistant"]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"<svg xmlns=", "image/svg+xml"),
    ],
)
def test_the_type_of_a_picture_is_told_by_how_it_begins(data: bytes, kind: str) -> None:
    assert Image(data=data).content().mime_type == kind


def test_what_is_said_counts_more_than_what_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    assert Image(tmp_path / "a.png", format="image/x-mine").content().mime_type == "image/x-mine"
    assert File(data=PNG, format="txt").content().resource.blob == coded(PNG)


def test_a_format_and_the_data_itself_name_the_same_type() -> None:
    """The suite of conformance asks for `audio/wav`."""
    assert Audio(data=WAV, format="wav").mime_type == Audio(data=WAV).mime_type == "audio/wav"
    assert Image(data=PNG, format="png").mime_type == Image(data=PNG).mime_type == "image/png"


@pytest.mark.parametrize("make", [lambda: Image(data=b"hello"), lambda: Image(data=WAV), lambda: Audio(data=PNG)])
def test_data_of_the_wrong_kind_is_the_authors_mistake(make: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^(Image|Audio)\('bytes'\) is .*, not (image|audio)/…: name its format"):
        make()


@pytest.mark.parametrize(
    ("format", "kind"),
    [("png", "image/png"), ("jpg", "image/jpeg"), ("image/webp", "image/webp"), ("x-odd", "image/x-odd")],
)
def test_a_format_is_a_file_ending_or_a_mime_type(format: str, kind: str) -> None:
    assert Image(data=b"?", format=format).content().mime_type == kind


@pytest.mark.parametrize("make", [Image, lambda: Image("a.png", data=PNG), lambda: Image(PNG)])  # type: ignore[arg-type]  # the mistake
def test_a_path_or_bytes_are_given_not_both(make: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^Image: give a path, as in Image\(path=…\), or bytes"):
        make()


def test_a_file_that_is_not_there_raises_where_it_is_named() -> None:
    with pytest.raises(FileNotFoundError):
        Image("/nowhere/chart.png")


@both_eras
async def test_a_result_made_by_hand_goes_out_with_its_meta(era: Era) -> None:
    """REQM-07: our own key stands beside the author's."""
    server: Server[Any] = Server("media")

    @server.tool
    async def made() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="x")], structured_content={"a": 1}, meta={"com.example/x": 1})

    async with BareEnd(server, era) as end:
        result = await end.call_tool("made")
        assert result["structuredContent"] == {"a": 1}
        assert result["_meta"]["com.example/x"] == 1
        assert ("io.modelcontextprotocol/serverInfo" in result["_meta"]) is (era == "2026")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.png", "image/png"),
        ("A.PNG", "image/png"),
        ("a.md", "text/markdown"),
        ("a.json", "application/json"),
        ("a.yaml", "application/yaml"),
        ("a.tar.gz", "application/gzip"),
        ("a.txt.xz", "application/x-xz"),
        ("x://host.com/a.svg?b.png#c.jpg", "image/svg+xml"),
        ("x://host.png/a", None),
        ("noext", None),
        (".env", None),
        ("", None),
        ("a.unheard-of", None),
        ("data:a.txt", "text/plain"),
    ],
)
def test_the_ending_tells_the_type(name: str, kind: str | None) -> None:
    assert guess_mime_type(name) == kind


def test_textual_types_are_told_from_binary_ones() -> None:
    for kind in ("text/plain", "TEXT/Html; charset=utf-8", "application/json", "image/svg+xml", "application/yaml"):
        assert is_text_type(kind)
    for kind in ("image/png", "application/octet-stream", "application/gzip", "audio/xmlish"):
        assert not is_text_type(kind)


def test_media_as_a_data_uri() -> None:
    assert Image(data=PNG).to_data_uri() == f"data:image/png;base64,{coded(PNG)}"
    assert File(data=b"a,b", format="csv").to_data_uri() == f"data:text/csv;base64,{coded(b'a,b')}"
