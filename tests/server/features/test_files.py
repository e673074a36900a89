"""Files and folders as resources: what is read, and that nothing outside the root ever is."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gemel import DefinitionError, ResourceNotFound, Server
from gemel.server.features import files as module
from gemel.server.features.files import Files
from tests.server.features.test_path_safety import WAYS_OUT
from tests.wire.talk import Refusal, Talk, talking

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX files")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with all kinds of things in it, beside a secret."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "docs-secret").mkdir()
    (tmp_path / "docs-secret" / "x.txt").write_text("secret")
    docs = tmp_path / "docs"
    (docs / "sub" / "deep").mkdir(parents=True)
    (docs / "a.txt").write_text("text")
    (docs / "empty.txt").write_text("")
    (docs / "sub" / "b c.md").write_text("größe")
    (docs / "sub" / "deep" / "pixel.png").write_bytes(b"\x89PNG\0")
    (docs / "latin.txt").write_bytes(b"gr\xf6\xdfe")
    (docs / "Makefile").write_text("all:")
    (docs / "blob").write_bytes(b"\0\1")
    (docs / ".env").write_text("secret")
    (docs / ".git").mkdir()
    (docs / ".git" / "config").write_text("secret")
    return docs


def serving(root: Path, **options: Any) -> Server[Any]:
    server = Server("s", **{key: options.pop(key) for key in ("resource_bytes",) if key in options})
    server.add_files(root, "file:///docs/", **options)
    return server


async def read(peer: Talk, uri: str) -> dict[str, Any]:
    (item,) = (await peer.result("resources/read", uri=uri))["contents"]
    found: dict[str, Any] = item
    return found


async def is_missing(peer: Talk, uri: str) -> bool:
    with pytest.raises(Refusal) as caught:
        await peer.result("resources/read", uri=uri)
    return caught.value.message in ("Resource not found", "Invalid URI: no scheme, or control characters")


# ---------------------------------------------------------------- what is there


async def test_a_folder_has_its_own_name_however_its_path_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    for path in (f"{root}/", ".", "sub/.."):
        server = Server("s")
        server.add_files(path, "file:///docs/")
        async with talking(server, "2026") as peer:
            assert [one["name"] for one in (await peer.result("resources/list"))["resources"]] == ["docs"]


@both_eras
async def test_a_folder_is_listed_as_one_resource_and_one_template(root: Path, era: str) -> None:
    """RES-02, RES-03, RES-08."""
    server = serving(root, title="Documents", description="All of them", ttl=60)
    async with talking(server, era) as peer:
        assert (await peer.result("resources/list"))["resources"] == [
            {
                "uri": "file:///docs/",
                "name": "docs",
                "title": "Documents",
                "description": "All of them",
                "mimeType": "inode/directory",
            }
        ]
        assert (await peer.result("resources/templates/list"))["resourceTemplates"] == [
            {"uriTemplate": "file:///docs/{+path}", "name": "docs", "title": "Documents", "description": "All of them"}
        ]
        result = await peer.result("resources/read", uri="file:///docs/a.txt")
        assert result.get("ttlMs") == (60_000 if era == "2026" else None)
        server.remove_resource("file:///docs/")
        assert await is_missing(peer, "file:///docs/a.txt")
        assert not len(server._resources)


async def test_files_are_text_or_blob_by_their_name_and_by_what_they_hold(root: Path) -> None:
    """RES-04."""
    async with talking(serving(root), "2026") as peer:
        found = {
            name: await read(peer, f"file:///docs/{name}")
            for name in ("a.txt", "empty.txt", "sub/b%20c.md", "sub/deep/pixel.png", "latin.txt", "Makefile", "blob")
        }
    assert found == {
        "a.txt": {"uri": "file:///docs/a.txt", "text": "text", "mimeType": "text/plain"},
        "empty.txt": {"uri": "file:///docs/empty.txt", "text": "", "mimeType": "text/plain"},
        "sub/b%20c.md": {"uri": "file:///docs/sub/b%20c.md", "text": "größe", "mimeType": "text/markdown"},
        "sub/deep/pixel.png": {
            "uri": "file:///docs/sub/deep/pixel.png",
            "blob": base64.b64encode(b"\x89PNG\0").decode(),
            "mimeType": "image/png",
        },
        "latin.txt": {
            "uri": "file:///docs/latin.txt",
            "blob": base64.b64encode(b"gr\xf6\xdfe").decode(),
            "mimeType": "text/plain",
        },
        "Makefile": {"uri": "file:///docs/Makefile", "text": "all:", "mimeType": "text/plain"},
        "blob": {"uri": "file:///docs/blob", "blob": "AAE=", "mimeType": "application/octet-stream"},
    }


async def test_a_folder_reads_as_the_list_of_its_entries(root: Path) -> None:
    """RES-08: in the order of their names, with URIs that can be read in turn."""
    async with talking(serving(root), "2026") as peer:
        top = json.loads((await read(peer, "file:///docs/"))["text"])
        sub = json.loads((await read(peer, "file:///docs/sub/"))["text"])
        assert json.loads((await read(peer, "file:///docs/sub"))["text"]) == sub
        for entry in top["entries"] + sub["entries"]:
            assert await read(peer, entry["uri"])
    assert [entry["name"] for entry in top["entries"]] == [
        "Makefile",
        "a.txt",
        "blob",
        "empty.txt",
        "latin.txt",
        "sub",
    ]
    assert sub == {
        "entries": [
            {"uri": "file:///docs/sub/b%20c.md", "name": "b c.md", "mimeType": "text/markdown", "size": 7},
            {"uri": "file:///docs/sub/deep/", "name": "deep", "mimeType": "inode/directory"},
        ]
    }


async def test_a_long_folder_is_cut_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    async with talking(serving(root), "2026") as peer:
        found = json.loads((await read(peer, "file:///docs/"))["text"])
    assert ([entry["name"] for entry in found["entries"]], found["more"]) == (["Makefile", "a.txt"], True)


async def test_a_path_is_completed_one_level_deep(root: Path) -> None:
    reference = {"type": "ref/resource", "uri": "file:///docs/{+path}"}
    found = {}
    async with talking(serving(root), "2026") as peer:
        for value in ("", "s", "sub/", "sub/d", "nothing/", "../", "a.txt/", ".e"):
            done = await peer.result("completion/complete", ref=reference, argument={"name": "path", "value": value})
            found[value] = done["completion"]["values"]
    assert found == {
        "": ["Makefile", "a.txt", "blob", "empty.txt", "latin.txt", "sub/"],
        "s": ["sub/"],
        "sub/": ["sub/b c.md", "sub/deep/"],
        "sub/d": ["sub/deep/"],
        "nothing/": [],
        "../": [],
        "a.txt/": [],
        ".e": [],
    }


@both_eras
async def test_one_file_is_one_resource(root: Path, era: str) -> None:
    server = Server("s")
    server.add_files(root / "a.txt")
    server.add_files(root / "blob", "file:///b", name="b", mime_type="text/x-thing")
    (root / "note").write_text("note")
    server.add_files(root / "note", "x://note", mime_type="text/x-note")
    async with talking(server, era) as peer:
        listed = (await peer.result("resources/list"))["resources"]
        assert listed == [
            {"uri": "file:///a.txt", "name": "a.txt", "mimeType": "text/plain", "size": 4},
            {"uri": "file:///b", "name": "b", "mimeType": "text/x-thing", "size": 2},
            {"uri": "x://note", "name": "note", "mimeType": "text/x-note", "size": 4},
        ]
        assert (await peer.result("resources/templates/list"))["resourceTemplates"] == []
        assert (await read(peer, "file:///a.txt"))["text"] == "text"
        assert await read(peer, "x://note") == {"uri": "x://note", "text": "note", "mimeType": "text/x-note"}
        (root / "a.txt").unlink()
        assert await is_missing(peer, "file:///a.txt")


async def test_a_file_beyond_the_limit_is_refused(root: Path) -> None:
    (root / "exact.txt").write_text("x" * 10)
    (root / "large.txt").write_text("x" * 11)
    async with talking(serving(root, resource_bytes=10), "2026") as peer:
        assert (await read(peer, "file:///docs/exact.txt"))["text"] == "x" * 10
        with pytest.raises(Refusal, match="larger than 10 bytes"):
            await read(peer, "file:///docs/large.txt")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
async def test_a_file_that_is_larger_than_it_says_is_refused() -> None:
    """Files of /proc say that they are empty."""
    server = Server("s", resource_bytes=100)
    server.add_files("/proc/self/status", "x://status")
    async with talking(server, "2026") as peer:
        with pytest.raises(Refusal, match="larger than 100 bytes"):
            await read(peer, "x://status")


async def test_files_that_are_there_may_be_watched(root: Path) -> None:
    """SUB-15."""
    async with talking(serving(root), "2025") as peer:
        for uri in ("file:///docs/", "file:///docs/a.txt", "file:///docs/sub", "file:///docs/sub/b%20c.md"):
            assert await peer.result("resources/subscribe", uri=uri) == {}
        for uri in ("file:///docs/nothing", "file:///docs/.env", "file:///docs/../secret.txt", "file:///else/a.txt"):
            with pytest.raises(Refusal):
                await peer.result("resources/subscribe", uri=uri)


# ---------------------------------------------------------------- what is not there


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_no_writing_of_a_path_leads_out(root: Path, way: str) -> None:
    """RES-09: as it stands, encoded once more, at the start and further inside."""
    for path in (
        way,
        f"{way}/secret.txt",
        f"sub/{way}",
        f"sub/{way}/../secret.txt",
        quote(way),
        quote(quote(way, safe=""), safe=""),
    ):
        async with talking(serving(root), "2026") as peer:
            assert await is_missing(peer, f"file:///docs/{path}")


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "a.txt/",
        "a.txt/b",
        "sub//b%20c.md",
        "./a.txt",
        "sub/./b%20c.md",
        "sub/../a.txt",
        ".env",
        ".git/config",
        "%2eenv",
        "sub%5cdeep",
        "a.txt%00",
        "a.txt%00.png",
        "x" * 300,
        "/".join(["sub"] * 3000),
        "a.txt?x=1",
        "a.txt#x",
    ],
)
async def test_what_is_no_plain_path_to_a_file_is_missing(root: Path, path: str) -> None:
    """RES-09."""
    async with talking(serving(root), "2026") as peer:
        assert await is_missing(peer, f"file:///docs/{path}")


async def test_a_prefix_that_looks_alike_is_another_place(root: Path) -> None:
    """RES-09: `docs-secret` begins like `docs`."""
    async with talking(serving(root), "2026") as peer:
        for uri in ("file:///docs-secret/x.txt", "file:///docs/../docs-secret/x.txt", "file:///docs"):
            assert await is_missing(peer, uri)


async def test_hidden_names_are_there_for_who_asks_for_them(root: Path) -> None:
    async with talking(serving(root, hidden=True), "2026") as peer:
        assert (await read(peer, "file:///docs/.git/config"))["text"] == "secret"
        for uri in ("file:///docs/.", "file:///docs/..", "file:///docs/.git/.."):
            assert await is_missing(peer, uri)


@posix_only
async def test_symlinks_count_where_they_lead_to(root: Path) -> None:
    """RES-09: out of the root, to what is hidden, or in a circle, there is nothing."""
    (root / "inside").symlink_to("sub/b c.md")
    (root / "inside-too").symlink_to(root / "sub")
    (root / "out").symlink_to("../secret.txt")
    (root / "out-folder").symlink_to(root.parent)
    (root / "out-absolute").symlink_to("/etc")
    (root / "out-alike").symlink_to(root.parent / "docs-secret")
    (root / "hidden").symlink_to(".env")
    (root / "circle").symlink_to("circle")
    (root / "chain").symlink_to("out")
    (root / "dangling").symlink_to("nothing")
    async with talking(serving(root), "2026") as peer:
        assert (await read(peer, "file:///docs/inside"))["text"] == "größe"
        assert (await read(peer, "file:///docs/inside-too/b%20c.md"))["text"] == "größe"
        for path in (
            "out",
            "out-folder/secret.txt",
            "out-folder",
            "out-absolute/passwd",
            "out-alike/x.txt",
            "hidden",
            "circle",
            "chain",
            "dangling",
            "inside-too/../../secret.txt",
        ):
            assert await is_missing(peer, f"file:///docs/{path}"), path
        names = [entry["name"] for entry in json.loads((await read(peer, "file:///docs/"))["text"])["entries"]]
    assert names == ["Makefile", "a.txt", "blob", "empty.txt", "inside", "inside-too", "latin.txt", "sub"]


@posix_only
async def test_a_root_that_is_a_symlink_is_fine(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    server = Server("s")
    server.add_files(root.parent / "link")
    async with talking(server, "2026") as peer:
        assert (await read(peer, "file:///docs/a.txt"))["text"] == "text"


@posix_only
@pytest.mark.parametrize("swap", ["folder", "file", "root"])
def test_what_becomes_a_symlink_after_the_check_is_not_followed(
    root: Path, swap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RES-09: between looking and opening somebody changes the tree."""
    (root.parent / "docs-secret" / "b c.md").write_text("secret")
    files = Files(root, "file:///docs/", hidden=False, limit=1000)
    look = os.path.realpath

    def look_and_swap(path: Any, **options: Any) -> str:
        found: str = look(path, **options)
        victim = {"folder": root / "sub", "file": root / "sub" / "b c.md", "root": root}[swap]
        if not victim.is_symlink():
            victim.rename(root.parent / "moved")
            victim.symlink_to(root.parent / ("docs-secret/x.txt" if swap == "file" else "docs-secret"))
        return found

    monkeypatch.setattr(os.path, "realpath", look_and_swap)
    assert not files.exists("sub/b c.md")


@posix_only
async def test_only_files_and_folders_are_there(root: Path) -> None:
    """A pipe without a writer would hold up whoever opens it."""
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        async with talking(serving(root), "2026") as peer:
            for name in ("pipe", "socket"):
                assert await is_missing(peer, f"file:///docs/{name}")
            entries = json.loads((await read(peer, "file:///docs/"))["text"])["entries"]
    assert not {"pipe", "socket"} & {entry["name"] for entry in entries}


@posix_only
async def test_names_that_are_no_text_are_left_out(root: Path) -> None:
    try:
        (root / os.fsdecode(b"\xff.txt")).write_text("x")
    except OSError:
        pytest.skip("this file system has no such names")
    async with talking(serving(root), "2026") as peer:
        entries = json.loads((await read(peer, "file:///docs/"))["text"])["entries"]
        assert len(entries) == 6
        assert await is_missing(peer, "file:///docs/%FF.txt")


@posix_only
@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else False, reason="root may read everything")
async def test_what_may_not_be_read_is_missing(root: Path) -> None:
    (root / "a.txt").chmod(0)
    async with talking(serving(root), "2026") as peer:
        assert await is_missing(peer, "file:///docs/a.txt")


async def test_a_fault_of_this_machine_is_told_as_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files isn't a missing resource."""
    files = Files(root, "file:///docs/", hidden=False, limit=1000)

    def fail(*args: Any, **options: Any) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(files, "_open", fail)
    with pytest.raises(OSError, match="Too many open files"):
        files.exists("a.txt")


def test_systems_without_stepwise_opening_look_again_after_opening(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPWISE", False)
    files = Files(root / "a.txt", "x://a", hidden=False, limit=1000)
    assert files.exists("")
    (root / "a.txt").rename(root / "b.txt")
    (root / "a.txt").symlink_to("b.txt")
    with pytest.raises(FileNotFoundError, match="changed while it was opened"):
        files._open_checked(str(root / "a.txt"))
    with pytest.raises(ResourceNotFound), files._opened("nothing", ""):
        pass


@pytest.mark.parametrize(
    ("path", "uri", "words"),
    [
        ("nothing", "x://a/", "add_files: there is no "),
        ("docs", "x://a", "ends with a slash: write 'x://a/'"),
        ("docs", "a/", "needs a scheme"),
    ],
)
def test_a_mistake_of_the_author_is_told_at_once(root: Path, path: str, uri: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        Server("s").add_files(root.parent / path, uri)


# ---------------------------------------------------------------- work


class Looked:
    """How often paths are looked at one by one. Listing a folder is one look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for owner, names in ((os, ("stat", "lstat", "scandir", "listdir", "open")), (os.path, ("realpath",))):
            for name in names:
                monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, function: Any) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            return function(*args, **options)

        return counted


@posix_only
def test_the_work_of_a_completion_does_not_grow_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(500):
        (tmp_path / f"a{number}.txt").touch()
    (tmp_path / "below").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a1.txt")
    (tmp_path / "out").symlink_to("/etc")
    files = Files(tmp_path, "file:///", hidden=False, limit=10)
    looked = Looked(monkeypatch)
    assert files.complete("b") == ["below/"]
    assert len(files.complete("")) == 502
    assert looked.count < 50


@posix_only
def test_one_file_of_many_is_found_without_looking_at_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "more").mkdir()
    for number in range(500):
        (tmp_path / "more" / f"a{number}.txt").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "more")
    (tmp_path / "more" / "link").symlink_to(tmp_path / "more" / "a1.txt")
    (tmp_path / "more" / "out").symlink_to("/etc/passwd")
    files = Files(tmp_path, "file:///", hidden=False, limit=10)
    walked = set(files.walk())
    looked = Looked(monkeypatch)
    for path in (
        "more/a1.txt",
        "more/link",
        "more/out",
        "more/none",
        "linked/a1.txt",
        "more",
        "",
        "/",
        "more/../more/a1.txt",
    ):
        assert files.finds(path) == (path in walked)
    assert looked.count < 100
