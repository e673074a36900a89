"""`gemel receipts`: what it prints, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Context, Principal, Server, ToolError
from gemel.cli import main
from gemel.decisions import Decision, decisions
from gemel.receipts import Receipts
from tests.receipts.written import KEY, raw_lines


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with receipts of two servers, made with a key in an environment variable and in a file."""
    path = tmp_path / "receipts.jsonl"
    asyncio.run(_write(path))
    monkeypatch.setenv("KEY_OF_RECEIPTS", KEY)
    (tmp_path / "key").write_text(KEY + "\n")
    return path


async def _write(path: Path) -> None:
    """One of the principals has a client that is known."""

    async def decide(ctx: Any, call_next: Any) -> Any:
        made = decisions.get()
        if made is not None and ctx.method == "tools/call":
            made.append(Decision("ask", "pays", "ada"))
        return await call_next(ctx)

    for name, principal in (("shop", Principal("ada", client="app-7")), ("bank", "e\x1b[31mve")):
        server: Server[Any] = Server(name, middleware=[Receipts(path, key=KEY), decide])

        @server.tool
        async def pay(amount: int, ctx: Context) -> str:
            if amount > 10:
                raise ToolError("too much")
            return await ctx.elicit("Sure?", str) if amount == 7 else "paid"

        async with Client(server, principal=principal, era="2026", on_elicit=lambda asked: {"value": "yes"}) as client:
            await client.call_tool("pay", {"amount": 7})
            with pytest.raises(ToolError):
                await client.call_tool("pay", {"amount": 11})


def test_whole_chains_are_reported(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--key-env", "KEY_OF_RECEIPTS"], ["--key-file", str(path.with_name("key"))]):
        assert main(["receipts", "verify", str(path), *option]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first == f"{path}: lines 1 to 8 are whole, 4 receipts"
        head = second.removeprefix("  head ")
        assert head == json.loads(raw_lines(path)[-1])["hash"]
        assert main(["receipts", "verify", str(path), *option, "--head", head, "--json"]) == 0
        (report,) = json.loads(capsys.readouterr().out)["chains"]
        assert (report["files"], report["head"], report["receipts"]) == ([str(path)], head, 4)


def test_a_chain_that_is_not_closed_is_told(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in raw_lines(path)[:-1]))
    assert main(["receipts", "verify", str(path), "--key-env", "KEY_OF_RECEIPTS"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"{path}: lines 1 to 7 are whole, 4 receipts, the last process runs or was killed"


def test_the_first_broken_line_is_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(path.read_bytes().replace(b'"tool error"', b'"ok"', 1))
    assert main(["receipts", "verify", str(path), "--key-env", "KEY_OF_RECEIPTS"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err == f"gemel: {path}:4: the line was changed: its hash is another one\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "was written with a key"),
        (["--key-env", "NO_SUCH_VARIABLE"], "--key-env NO_SUCH_VARIABLE: this environment variable is not set"),
        (["--key-file", "/nowhere/key"], "--key-file /nowhere/key: No such file or directory"),
        (["--key-env", "KEY_OF_RECEIPTS", "--head", "00"], "has no line with the hash 00"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    path: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["receipts", "verify", str(path), *words]) == 1
    err = capsys.readouterr().err
    assert text in err
    assert err.count("\n") == 1


def shown(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["receipts", "show", str(path), *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_receipts_are_shown_one_a_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(path, capsys)
    assert len(lines) == 4
    assert "  ok  shop/pay  " in lines[0]
    assert lines[0].endswith("  by ada  with gemel 0.1.0  for client app-7  ask by rule pays  approved by ada")
    assert "  tool error  bank/pay  " in lines[3]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--tool", "p*"], 4),
        (["--tool", "x*"], 0),
        (["--server", "bank"], 2),
        (["--principal", "a*"], 2),
        (["--client", "gemel*"], 4),
        (["--client", "app-*"], 2),
        (["--outcome", "ok"], 2),
        (["--outcome", "ok", "--outcome", "tool error"], 4),
        (["--effect", "ask"], 4),
        (["--effect", "deny"], 0),
        (["--since", "1h"], 4),
        (["--until", "1h"], 0),
        (["--since", "2999-01-01"], 0),
        (["--since", "2020-01-01T00:00:00Z", "--until", "2999-01-01T00:00:00+02:00"], 4),
    ],
)
def test_filters(path: Path, words: list[str], count: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in shown(path, capsys, "--json", *words)]
    assert len(lines) == count


def test_another_file_is_none_of_receipts(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.with_name("key").write_text("secret")
    assert main(["receipts", "show", str(path.with_name("key"))]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"gemel: {path.with_name('key')} is no file of receipts\n")


def test_the_outcomes_that_there_are_are_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["receipts", "show", str(path), "--outcome", "tool eror"])
    assert "(choose from ok, tool error, error, declined, cancelled, unknown); did you mean" in capsys.readouterr().err


_MEMBERS = ("n", "at", "kind", "tool", "outcome", "ms", "key", "before", "after", "state", "hash")
_ODD = ("null", "[1]", '{"a":1}', "true", "1.5", '"x\\n\\u001b[31m"', '"\\ud800"', "1" * 5000, "")


def _put(text: str) -> Callable[[re.Match[str]], str]:
    return lambda found: text


@pytest.mark.parametrize("odd", _ODD)
def test_lines_that_somebody_changed_are_found_and_shown_as_far_as_they_can_be_read(
    path: Path, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any JSON value, or none, in the place of a member."""
    text = path.read_text()
    for member in _MEMBERS:
        put = f'"{member}":{odd}' if odd else f'"no {member}":1'
        path.write_text(re.sub(rf'"{member}":("[^"]*"|null|[0-9.]+)(?=[,}}])', _put(put), text))
        assert main(["receipts", "verify", str(path), "--key-env", "KEY_OF_RECEIPTS"]) == 1
        assert capsys.readouterr().err.count("\n") == 1
        for words in ([], ["--json"], ["--tool", "*"], ["--outcome", "ok"], ["--abandoned-after", "0"]):
            code = main(["receipts", "show", str(path), *words])
            out, err = capsys.readouterr()
            assert "\x1b" not in out
            if code:
                assert "is no file of receipts" in out + err
            else:
                assert all("shop" in line or "bank" in line for line in out.splitlines())


def test_a_time_that_can_not_be_read_is_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["receipts", "show", str(path), "--since", "yesterday"]) == 1
    assert "--since yesterday: write 30m, 2h, 7d" in capsys.readouterr().err


def test_a_call_that_its_client_abandoned_is_shown_as_unknown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_abandon(path.with_name("left.jsonl")))
    left = path.with_name("left.jsonl")
    assert shown(left, capsys) == []
    (line,) = shown(left, capsys, "--abandoned-after", "0", "--outcome", "unknown")
    assert "unknown (abandoned)  shop/ask" in line


async def _abandon(path: Path) -> None:
    server: Server[Any] = Server("shop", middleware=[Receipts(path)])

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Sure?", str)

    async def leave(asked: Any) -> None:
        raise asyncio.CancelledError

    async with Client(server, era="2026", on_elicit=leave) as client:
        with pytest.raises(asyncio.CancelledError):
            await client.call_tool("ask")


def test_a_file_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("verify", "show"):
        assert main(["receipts", action, str(tmp_path / "none.jsonl")]) == 1
        assert capsys.readouterr().err == f"gemel: No such file: {tmp_path / 'none.jsonl'}\n"
