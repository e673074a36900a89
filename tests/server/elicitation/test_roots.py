"""Paths are held to the roots of the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Context, MissingClientCapability, Root, Server, ToolError, path_in_roots

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shared folder"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "a.txt").write_text("a")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "shared folder2").mkdir()
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    return folder


def test_a_path_within_a_root_is_resolved(folder: Path) -> None:
    """ROOT-07."""
    roots = [Root(uri="https://example.com/"), Root(uri=folder.as_uri())]
    real = folder.resolve() / "docs" / "a.txt"
    for path in ("docs/a.txt", "docs/../docs/a.txt", folder / "docs" / "a.txt", str(real)):
        assert path_in_roots(path, roots) == real
    assert path_in_roots("", roots) == folder.resolve()
    assert path_in_roots("new.txt", roots) == folder.resolve() / "new.txt"


@pytest.mark.parametrize(
    "path", ["../secret.txt", "link", "docs/../../secret.txt", "/etc/passwd", "../shared folder2/x", "a\0b", "/"]
)
def test_a_path_outside_of_the_roots_is_refused(folder: Path, path: str) -> None:
    """ROOT-07: also through a link, and a folder whose name only begins like the root's."""
    with pytest.raises(ToolError, match="is not within the folders that the client shares"):
        path_in_roots(path, [Root(uri=folder.as_uri())])


@pytest.mark.parametrize(
    "uri", ["https://example.com/", "file://server/share", "file:", "x", "http://[", "file:///nowhere"]
)
def test_other_roots_hold_nothing(folder: Path, uri: str) -> None:
    with pytest.raises(ToolError):
        path_in_roots(folder / "docs" / "a.txt", [Root(uri=uri)])


@pytest.mark.parametrize("scheme", ["https://", "file://server", "ftp://localhost", "x:"])
def test_the_path_of_a_root_counts_for_files_of_this_machine_only(folder: Path, scheme: str) -> None:
    with pytest.raises(ToolError):
        path_in_roots("docs/a.txt", [Root(uri=folder.as_uri().replace("file://", scheme))])
    local = Root(uri=folder.as_uri().replace("file://", "file://localhost"))
    assert path_in_roots("docs/a.txt", [local]) == folder.resolve() / "docs" / "a.txt"


@both_eras
async def test_a_tool_reads_within_the_roots_of_its_caller_only(folder: Path, era: Any) -> None:
    """ROOT-07: the capability is checked first."""
    server: Server[Any] = Server("reader")

    @server.tool
    async def read(ctx: Context, path: str) -> str:
        return path_in_roots(path, await ctx.list_roots()).read_text()

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.list_roots()
        except MissingClientCapability:
            return "no roots"
        return "roots"

    async with Client(server, era=era, on_roots=[folder]) as client:
        assert (await client.call_tool("read", {"path": "docs/a.txt"})).text == "a"
        refused = await client.call_tool("read", {"path": "../secret.txt"}, raise_on_error=False)
        assert refused.is_error
        assert "is not within the folders" in refused.text
        assert (await client.call_tool("ask")).text == "roots"
    async with Client(server, era=era) as client:
        assert (await client.call_tool("ask")).text == "no roots"
