"""Files of users: written as a whole, never through a symbolic link, and by one module only."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gemel import Client, Server, StartError, TextContent
from gemel.cli import main
from gemel.client.content import save_content
from gemel.testing import Recording
from gemel.testing.snapshots import Snapshots
from gemel.user_files import append_to_file, path_within, replace_file, truncate_file, write_new_file
from tests.extensions.test_skills import write_skill
from tests.source import PACKAGE, read_package

Write: TypeAlias = Callable[[Path], object]

#: Other modules that make or change files: what they write, and why it is not a file that a user names or edits.
OTHERS = {
    "auth/client/private_files.py": "lock files in a directory for the user only, opened without following links",
    "backends/sqlite_file.py": "makes the database with O_EXCL; SQLite writes it",
    "transports/stream/subprocess.py": "appends to the log that a program names for the standard error of a child",
    "transports/http/server/workers/run.py": "a new temporary folder for the sockets of workers",
    "standard_streams.py": "opens the null device",
    "migrate/check.py": "the job of a process that is checked, in a temporary folder of its own",
    "migrate/probe.py": "the result of that process, in the same folder",
    "code/child.py": "opens the null device",
    "receipts/files.py": "the lock of the processes that write receipts; receipts are appended by descriptor",
}
#: Modules that remove files, and which.
REMOVERS = {
    "user_files.py": "what could not be written as a whole",
    "install/change.py": "a file that did not exist before it was written, and the records of what was",
    "auth/client/stores.py": "logins, and what killed processes left of them",
    "local_sockets.py": "the Unix socket of a dead server",
    "transports/stream/sockets.py": "the own Unix socket",
    "transports/http/server/run.py": "the own Unix socket",
    "transports/http/server/workers/run.py": "the own temporary folder",
    "transports/http/server/workers/worker.py": "the temporary folder of a supervisor that is gone",
    "server/metrics.py": "the socket in the temporary folder of the workers",
    "receipts/files.py": "rotated receipts beyond `keep`",
}
WRITES_BY_NAME = re.compile(
    r"os\.(open|replace|rename|link|symlink)|tempfile\.\w+|shutil\.(copy\w*|move)|fileinput\.input"
)


def writes(node: ast.AST) -> bool:
    """Whether a call may write to a file by its name."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("write_text", "write_bytes"):
        return True
    if name == "os.open":
        return "O_WRONLY" in ast.unparse(node) or "O_RDWR" in ast.unparse(node) or "O_CREAT" in ast.unparse(node)
    if WRITES_BY_NAME.fullmatch(name):
        return True
    if name == "open" or (isinstance(node.func, ast.Attribute) and node.func.attr == "open"):
        place = 1 if name == "open" else 0
        modes = [*node.args[place : place + 1], *(word.value for word in node.keywords if word.arg == "mode")]
        return any(
            isinstance(mode, ast.Constant | ast.IfExp) and bool(re.search("['\"][rbt]*[wax+]", ast.unparse(mode)))
            for mode in modes
        )
    return False


def test_one_module_writes_the_files_of_users() -> None:
    found: dict[str, list[str]] = {}
    for module in read_package():
        places = [
            module.at(node.lineno) for node in ast.walk(module.tree) if isinstance(node, ast.Call) and writes(node)
        ]
        if places:
            found[module.path.relative_to(PACKAGE).as_posix()] = places
    assert found.pop("user_files.py")
    assert {name: places for name, places in found.items() if name not in OTHERS} == {}
    assert OTHERS.keys() - found.keys() == set(), "what is listed and doesn't write any more"


def test_files_are_removed_in_known_places_only() -> None:
    calls = re.compile(r"os\.(unlink|remove|rmdir|removedirs)|shutil\.rmtree|.*\.(unlink|rmdir)")
    found = {
        module.path.relative_to(PACKAGE).as_posix()
        for module in read_package()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and calls.fullmatch(ast.unparse(node.func))
    }
    assert found == REMOVERS.keys()


@pytest.mark.parametrize(
    "text",
    [
        "open(p, 'w')",
        "open(p, mode='ab')",
        "open(p, 'wb' if x else 'xb')",
        "p.open('r+b')",
        "p.write_text(t)",
        "os.open(p, os.O_CREAT)",
        "os.replace(a, b)",
        "tempfile.mkstemp()",
        "shutil.copyfile(a, b)",
    ],
)
def test_a_write_in_the_source_is_noticed(text: str) -> None:
    assert any(map(writes, ast.walk(ast.parse(text))))


# ---------------------------------------------------------------- one file


WRITERS: dict[str, Write] = {
    "replace": lambda path: replace_file(path, b"new"),
    "new": lambda path: write_new_file(path, b"new"),
    "append": lambda path: append_to_file(path, b"new"),
    "truncate": lambda path: truncate_file(path, 0),
    "save": lambda path: save_content(TextContent(text="new"), path, overwrite=True),
    "snapshot": lambda path: Snapshots(path.parent, path.stem, update=True)("new"),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_not_followed(tmp_path: Path, write: Write, exists: bool) -> None:
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "folder" / "file.json"
    link.parent.mkdir()
    link.symlink_to(elsewhere)
    if exists:
        elsewhere.write_text("theirs")
    with pytest.raises(OSError, match=r"symbolic link|File exists"):
        write(link)
    assert link.is_symlink()
    assert elsewhere.exists() == exists
    assert not exists or elsewhere.read_text() == "theirs"
    assert os.listdir(link.parent) == [link.name]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_a_pipe_is_neither_waited_for_nor_replaced(tmp_path: Path, write: Write) -> None:
    pipe = tmp_path / "file.json"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match=r"regular file|File exists"):
        write(pipe)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    replace_file(path, b"new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only the superuser gives files away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    """A command that is run by sudo leaves the files of a user to the user."""
    path = tmp_path / "file"
    path.write_text("old")
    os.chown(path, 1234, 2345)
    path.chmod(0o640)
    replace_file(path, b"new")
    status = path.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 2345, 0o640)


def test_a_file_without_write_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("the superuser may write it")
    with pytest.raises(PermissionError):
        replace_file(path, b"new")


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "a", b"")
        write_new_file(tmp_path / "b", b"")
        replace_file(tmp_path / "c", b"", mode=0o600)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "abc"] == [0o640, 0o640, 0o600]


def test_a_file_that_cannot_be_written_stays_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: writing ends with an error at the end."""
    path = tmp_path / "file"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        replace_file(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


KILLED = """
import os, sys
from pathlib import Path
from gemel.user_files import replace_file
os.replace = lambda *_: os._exit(9)
replace_file(Path(sys.argv[1]), b"new")
"""


def test_a_process_that_is_killed_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    assert subprocess.run([sys.executable, "-c", KILLED, path], check=False).returncode == 9
    assert path.read_text() == "old"


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc/x", "out/x", "."])
def test_a_path_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    with pytest.raises(StartError, match="leads out of"):
        path_within(folder, name)
    assert path_within(folder, "a/b") == folder / "a/b"


# ---------------------------------------------------------------- commands in a folder that somebody else prepared

SERVER = """
from gemel import Image, Server

server = Server("shop", version="1")
server.add_skills("skills")

@server.tool
def picture() -> Image:
    return Image(data=b"png", format="png")
"""
PYPROJECT = '[project]\nname = "shop"\nversion = "1"\ndependencies = ["gemel"]\n'


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "shop.py").write_text(SERVER)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    write_skill(folder / "skills", "brewing")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return folder


COMMANDS: dict[str, tuple[str, list[str]]] = {
    "lock": ("gemel.lock", ["lock", "shop.py"]),
    "bundle": ("shop-1.mcpb", ["bundle", "shop.py"]),
    "install": (".mcp.json", ["install", "shop.py", "--host", "claude-code", "--project", "--yes"]),
    "install in a folder": (".vscode", ["install", "shop.py", "--host", "vscode", "--project", "--yes"]),
    "skills": ("copy/brewing", ["skills", "get", "shop.py", "brewing", "--save", "copy"]),
    "init": ("copy/pyproject.toml", ["init", "copy"]),
    "migrate": ("old.py", ["migrate", "--no-check", "--write", "old.py"]),
    "record": ("w.jsonl", ["record", "w.jsonl", "shop.py"]),
}


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(("name", "words"), COMMANDS.values(), ids=COMMANDS.keys())
def test_no_command_writes_outside_the_folder(
    prepared: Path, name: str, words: list[str], exists: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = prepared.parent / "home" / "outside"
    content = {"lock": '{"gemelLock": 1}', "migrate": 'from fastmcp import FastMCP\n\nmcp = FastMCP("a")\n'}.get(
        words[0], "{}"
    )
    if exists and name in (".vscode", "copy/brewing"):
        outside.mkdir()
    elif exists:
        outside.write_text(content)
    (prepared / name).parent.mkdir(exist_ok=True)
    (prepared / name).symlink_to(outside)
    assert main(words) == 1
    error = capsys.readouterr().err
    assert re.search("link|leads out|not empty|exist|record", error), error
    assert (prepared / name).is_symlink()
    assert outside.exists() == exists
    if outside.is_dir():
        assert not list(outside.iterdir())
    elif exists:
        assert outside.read_text() == content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("command", ["lock", "install", "record"])
def test_no_command_waits_for_a_pipe(prepared: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, words = COMMANDS[command]
    os.mkfifo(prepared / name)
    assert main(words) == 1
    assert name in capsys.readouterr().err
    assert stat.S_ISFIFO((prepared / name).lstat().st_mode)


def test_a_bundle_takes_no_file_from_outside(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (prepared.parent / "home" / "secret").write_text("s3cret")
    (prepared / "data.txt").symlink_to(prepared.parent / "home" / "secret")
    assert main(["bundle", "shop.py"]) == 1
    assert "data.txt leads out of" in capsys.readouterr().err
    assert not list(prepared.glob("*.mcpb"))


def test_a_recording_replaces_recordings_only(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "shop.py", "shop.py"]) == 1
    assert "shop.py exists and is not a recording: it is not overwritten" in capsys.readouterr().err
    assert (prepared / "shop.py").read_text() == SERVER


async def test_a_recording_that_becomes_a_link_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server: Server[Any] = Server("recorded")
    path, elsewhere = tmp_path / "r.jsonl", tmp_path / "elsewhere"
    elsewhere.write_text("theirs")
    async with Client(Recording(path, server, record="always")) as client:
        await client.ping()
        assert json.loads(path.read_text().splitlines()[0])["recording"] == 1
        path.unlink()
        path.symlink_to(elsewhere)
        await client.ping()
    assert "ends here: it is a symbolic link" in caplog.text
    assert elsewhere.read_text() == "theirs"


# ---------------------------------------------------------------- migrate

OLD = 'from fastmcp import FastMCP\n\nmcp = FastMCP("%s")\n'
NEW = 'from gemel import Server\n\nmcp = Server("%s", coerce=True, error_details=True, structured_text=True)\n'


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("", "utf-8"),
        ("", "utf-8-sig"),
        ("# -*- coding: latin-1 -*-\n", "latin-1"),
        ("#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n", "cp1252"),
    ],
)
def test_a_source_keeps_its_encoding(tmp_path: Path, head: str, encoding: str) -> None:
    """PEP 263."""
    file = tmp_path / "a.py"
    file.write_bytes((head + OLD % "café").encode(encoding))
    file.chmod(0o755)
    assert main(["migrate", "--no-check", "--write", str(tmp_path)]) == 0
    assert file.read_bytes() == (head + NEW % "café").encode(encoding)
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "data",
    [
        (OLD % "café").encode("latin-1"),
        b"# coding: no-such-encoding\n" + (OLD % "a").encode(),
        b"# coding: rot13\n" + (OLD % "a").encode(),
        b"# coding: ascii\n" + (OLD % "café").encode(),
    ],
)
def test_a_source_that_cannot_be_decoded_stays(tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(data)
    (tmp_path / "b.py").write_text(OLD % "b")
    assert main(["migrate", "--no-check", "--write", str(tmp_path)]) == 0
    assert f"{file}:1: can't be decoded: " in (error := capsys.readouterr().err)
    assert "declare the encoding (PEP 263)" in error
    assert "1 file changed; 1 left to do by hand" in error
    assert file.read_bytes() == data


def test_links_in_a_folder_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "a.py").write_text(OLD % "a")
    (folder / "a.py").symlink_to(outside / "a.py")
    (folder / "more").symlink_to(outside)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "a.py").write_text(OLD % "a")
    assert main(["migrate", "--no-check", "--write", str(folder)]) == 0
    assert "0 files changed; 0 left to do by hand" in capsys.readouterr().err
    assert (outside / "a.py").read_text() == OLD % "a"
