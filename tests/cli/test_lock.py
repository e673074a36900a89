"""The commands lock and diff, as real processes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick_commands import QUICK

SERVER = '''
"""A server that is locked."""
from gemel import Server

server = Server("shop", version="3", instructions="Be brief.")


@server.tool(annotations={"read_only_hint": True})
def price(item: str, count: int = 1) -> float:
    """What something costs."""
    return 2.5 * count


@server.prompt
def ask(topic: str) -> str:
    """Ask about it."""
    return topic


@server.resource("shop://{item}/stock")
def stock(item: str) -> str:
    """How many there are."""
    return "7"
'''


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server and its lock, once for all."""
    directory = tmp_path_factory.mktemp("locked")
    (directory / "shop.py").write_text(SERVER)
    assert gemel(directory, "lock", "shop.py").returncode == 0
    return directory


@pytest.fixture
def place(locked: Path, tmp_path: Path) -> Path:
    for name in ("shop.py", "gemel.lock"):
        (tmp_path / name).write_bytes((locked / name).read_bytes())
    return tmp_path


def gemel(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """One command, run to its end."""
    return QUICK.run(*words, cwd=place)


def change(place: Path, *replaced: tuple[str, str]) -> None:
    """The server after a change; each text must be there."""
    text = SERVER
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    (place / "shop.py").write_text(text)


def test_what_was_locked_is_told_and_the_file_is_the_same_each_time(place: Path) -> None:
    first = (place / "gemel.lock").read_bytes()
    done = gemel(place, "lock", "shop.py", "--era", "2026")
    assert done.stdout == "gemel.lock: shop 3, 1 tool, 1 prompt, 0 resources, 1 resource template\n"
    assert (place / "gemel.lock").read_bytes() == first
    assert gemel(place, "lock", "shop.py", "-o", "-").stdout.encode() == first
    assert not list(place.glob(".gemel.lock*"))


def test_the_other_era_has_the_same_fingerprints(place: Path) -> None:
    other = json.loads(gemel(place, "lock", "shop.py", "--era", "2025", "-o", "-").stdout)
    here = json.loads((place / "gemel.lock").read_text())
    assert other["prompts"] == here["prompts"]
    done = gemel(place, "diff", "gemel.lock", "shop.py", "--era", "2025")
    assert (done.returncode, done.stdout) == (0, "Nothing changed.\n")


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ([], 0, ["Nothing changed."]),
        ([("count: int = 1", "count: int = 1, note: str = ''")], 3, ["harmless   tool price: input.note: is new"]),
        (
            [("something costs", "something costs, says the owner")],
            4,
            ['text       tool price: description: "What something costs." → "What something costs, says the owner."'],
        ),
        ([("count: int = 1", "count: int = 2")], 5, ["may break  tool price: input.count.default: 1 → 2"]),
        (
            [('annotations={"read_only_hint": True}', ""), ("topic: str", "topic: str, tone: str")],
            6,
            [
                "breaking   tool price: annotations.readOnlyHint: true → false",
                "breaking   prompt ask: arguments.tone: is new and required",
            ],
        ),
        ([("Be brief", "Be long")], 4, ['text       server: instructions: "Be brief." → "Be long."']),
    ],
)
def test_the_exit_code_says_how_grave_the_change_is(
    place: Path, changes: list[tuple[str, str]], code: int, said: list[str]
) -> None:
    change(place, *changes)
    done = gemel(place, "diff", "gemel.lock", "shop.py")
    assert done.stdout.splitlines() == said
    assert done.returncode == code
    assert (done.stderr == "") == (code == 0)


def test_lighter_changes_may_be_let_pass(place: Path) -> None:
    change(place, ("something costs", "it costs"))
    assert gemel(place, "diff", "gemel.lock", "shop.py", "--fail-on", "may-break").returncode == 0
    assert gemel(place, "diff", "gemel.lock", "shop.py", "--fail-on", "text").returncode == 4


def test_changes_are_printed_as_json(place: Path) -> None:
    change(place, ("def price(item: str, count: int = 1)", "def price(count: int = 1)"))
    done = gemel(place, "diff", "gemel.lock", "shop.py", "--json")
    (found,) = json.loads(done.stdout)
    assert found.pop("message").startswith("is gone")
    assert found == {"severity": "breaking", "kind": "tool", "name": "price", "place": "input.item"}


def test_two_locks_are_compared(place: Path) -> None:
    change(place, ("price(", "cost("))
    assert gemel(place, "lock", "shop.py", "-o", "new.lock", "--only", "tools,prompts").returncode == 0
    done = gemel(place, "diff", "gemel.lock", "new.lock")
    assert "tool price: is gone" in done.stdout
    assert "resource" not in done.stdout


def test_a_server_of_a_configuration_is_locked(place: Path) -> None:
    entry = {"command": sys.executable, "args": ["-m", "gemel", "run", "shop.py"], "cwd": str(place)}
    (place / "servers.json").write_text(json.dumps({"mcpServers": {"shop": entry, "other": {"command": "x"}}}))
    assert gemel(place, "diff", "gemel.lock", "servers.json:shop").returncode == 0
    unnamed = gemel(place, "diff", "gemel.lock", "servers.json")
    assert "servers.json has 2 servers: name one of them, servers.json:shop" in unnamed.stderr


def test_hidden_characters_are_told_when_a_lock_is_written(place: Path) -> None:
    change(place, ("something costs", "something costs\\u202e\\U000e0041"))
    done = gemel(place, "lock", "shop.py")
    assert done.stderr == "gemel: tool price has hidden characters: U+202E, U+E0041\n"
    assert "costs\\u202e\\udb40\\udc41" in (place / "gemel.lock").read_text()


def test_severities_are_coloured_on_a_terminal_only(place: Path) -> None:
    change(place, ("price(", "cost("))
    mine, theirs = pty.openpty()
    environment = {**{key: value for key, value in os.environ.items() if key != "NO_COLOR"}, "TERM": "xterm"}
    command = [sys.executable, "-m", "gemel", "diff", "gemel.lock", "shop.py"]
    with subprocess.Popen(command, cwd=place, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(mine, 1000)
            except OSError:  # the other end was closed
                break
            if not data:
                break
            shown += data
        assert process.wait(60) == 6
    os.close(mine)
    assert b"\x1b[31;1mbreaking " in shown
    assert "\x1b" not in gemel(place, "diff", "gemel.lock", "shop.py").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lock", "shop.py", "-o", "shop.py"], "shop.py exists and is not a lock file: it is not overwritten"),
        (["lock", "shop.py", "-o", "no/where"], "no/where can't be written: No such file or directory"),
        (["lock", "shop.py", "--only", "tolls"], "--only 'tolls' is not a section: use tools, "),
        (["lock", "gone.py"], ""),
        (["diff", "gone.lock", "shop.py"], "gone.lock can't be read: No such file or directory"),
        (["diff", "shop.py", "shop.py"], "shop.py is not JSON"),
        (
            ["diff", "other.json", "shop.py"],
            "other.json is not a lock file: `gemel lock TARGET -o other.json` writes one",
        ),
        (["diff", "gemel.lock", "other.json"], 'other.json has no "mcpServers"'),
        (["diff", "gemel.lock", "no-such-command"], ""),
    ],
)
def test_a_mistake_gets_one_line(place: Path, words: list[str], said: str) -> None:
    (place / "other.json").write_text("{}")
    done = gemel(place, *words)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"gemel: {said}")
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
