"""`gemel dev` as a command, against programs: a file that is edited, a command line, one that cannot start."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.dev.program import Program

SERVER = '''
import sys
from gemel import Server

server = Server("weather", version="1")

@server.tool
def forecast(city: str) -> str:
    """The weather."""
    print(f"asked for {city}", file=sys.stderr)
    return f"{city}: sunny"

if __name__ == "__main__":
    server.run()
'''


@asynccontextmanager
async def command(*words: str, cwd: Path) -> AsyncIterator[tuple[Program, str]]:
    """Run `gemel dev` in a folder until Ctrl-C; gives the program and the line that was printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gemel", "dev", *words, "--no-open"),
        stdout=asyncio.subprocess.PIPE,
        cwd=cwd,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            line = (await process.stdout.readline()).decode()
        assert "http://" in line, line
        address = next(word for word in line.split() if word.startswith("http://"))
        program = Program(address)
        try:
            yield program, line
        finally:
            await program.wire.close()
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "weather.py").write_text(SERVER)
    return tmp_path


async def test_one_line_says_where_the_page_is(folder: Path) -> None:
    async with command("weather.py", cwd=folder) as (program, line):
        assert line.startswith("Inspecting weather at http://127.0.0.1:")
        assert line.endswith("(reloads on change; Ctrl-C ends it)\n")
        await program.ready()
        call = await program.call("2026", "tools/call", {"name": "forecast", "arguments": {"city": "Oslo"}})
        ended = await program.ended(call)
        assert ended["result"]["content"][0]["text"] == "Oslo: sunny"
        stderr = await program.event("stderr", era="2026")
        assert stderr["text"] == "asked for Oslo"
        figures = await program.until(lambda event: event["kind"] == "measures" and event["tools"])
        if sys.platform == "linux":
            assert figures["memory"] > 1_000_000
        text = (await program.do("copy", **{"as": "curl"}, call=call))["text"]
        assert text.startswith("# gemel run weather.py --http\n")


@pytest.mark.long
async def test_an_edit_restarts_the_program_and_says_what_it_breaks(folder: Path) -> None:
    file = folder / "weather.py"
    async with command("weather.py", "--port", "0", cwd=folder) as (program, _):
        await program.ready()
        program.seen.clear()
        last = (await program.get("/api/state")).json["next"] - 1
        program.seen.append({"kind": "note", "n": last})
        file.write_text(SERVER.replace("city: str", "city: str, days: int"))
        restarted = await program.event("restarted")
        assert [Path(each).name for each in restarted["files"]] == ["weather.py"]
        contract = await program.event("contract")
        assert contract["summary"] == "This edit breaks clients in one place"
        assert contract["differences"][0]["severity"] == "breaking"
        assert contract["differences"][0]["name"] == "forecast"
        assert contract["differences"][0]["place"] == "input.days"
        assert "lock" not in contract
        offers = await program.event("offers", era="2026", section="tools")
        assert offers["items"][0]["inputSchema"]["required"] == ["city", "days"]
        # A syntax error: the program does not start, and comes back with the next edit.
        program.seen = program.seen[-1:]
        file.write_text("def broken(:\n")
        failed = await program.event("connection", era="2026", state="failed")
        assert "SyntaxError" in failed["error"]
        restarted = await program.until(lambda event: event["kind"] == "restarted" and "error" in event)
        program.seen = program.seen[-1:]
        file.write_text(SERVER.replace("city: str", "city: str, days: int = 1"))
        contract = await program.event("contract")
        assert contract["summary"] == "This edit breaks no client"
        assert await program.result("2026", "tools/call", {"name": "forecast", "arguments": {"city": "Oslo"}})


@pytest.mark.long
async def test_an_edit_ends_the_wait_for_a_program_that_hangs(folder: Path) -> None:
    file = folder / "weather.py"
    async with command("weather.py", "--port", "0", cwd=folder) as (program, _):
        await program.ready()
        last = (await program.get("/api/state")).json["next"] - 1
        program.seen = [{"kind": "note", "n": last}]
        file.write_text(f"import sys, time\nprint('hanging', file=sys.stderr, flush=True)\ntime.sleep(600)\n{SERVER}")
        await program.event("stderr", text="hanging")
        program.seen = program.seen[-1:]
        file.write_text(SERVER)
        for era in ("2025", "2026"):
            await program.event("connection", era=era, state="ready")


async def test_the_contract_is_compared_with_the_lock_beside_the_file(folder: Path) -> None:
    lock = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gemel", "lock", "weather.py", "-o", "gemel.lock"),
        stdout=asyncio.subprocess.DEVNULL,
        cwd=folder,
    )
    assert await lock.wait() == 0
    (folder / "weather.py").write_text(SERVER.replace('"""The weather."""', '"""Another text."""'))
    async with command("weather.py", "--port", "0", "--no-reload", cwd=folder) as (program, line):
        assert line.endswith("(Ctrl-C ends it)\n")
        contract = await program.event("contract")
        assert contract["differences"] == []
        assert contract["lock"]["path"] == "gemel.lock"
        assert [one["severity"] for one in contract["lock"]["differences"]] == ["text"]


async def test_a_command_line_is_inspected(folder: Path) -> None:
    words = (f"{sys.executable} weather.py", "--port", "0", "--era", "2025")
    async with command(*words, cwd=folder) as (program, _):
        await program.ready("2025")
        assert await program.result("2025", "ping") == {}
        await program.do("restart")
        await program.event("restarted", reason="asked for")
        assert await program.result("2025", "ping") == {}


async def test_an_entry_of_a_configuration_is_inspected(folder: Path) -> None:
    entry = {"command": sys.executable, "args": ["weather.py"]}
    (folder / "hosts.json").write_text(json.dumps({"mcpServers": {"station": entry}}))
    async with command("hosts.json:station", "--port", "0", cwd=folder) as (program, line):
        assert "station" in line
        await program.ready()
        for era in ("2025", "2026"):
            await program.result(era, "tools/call", {"name": "forecast", "arguments": {"city": "Oslo"}})


async def test_a_proxied_server_is_inspected(folder: Path) -> None:
    proxy = f"{sys.executable} -m gemel proxy weather.py --to stdio"
    async with command(proxy, "--port", "0", cwd=folder) as (program, _):
        await program.ready()
        for era in ("2025", "2026"):
            result = await program.result(era, "tools/call", {"name": "forecast", "arguments": {"city": "Oslo"}})
            assert "sunny" in json.dumps(result)


async def test_a_program_that_ends_is_shown_and_started_again(folder: Path) -> None:
    (folder / "weather.py").write_text(SERVER.replace('return f"{city}: sunny"', "import os; os._exit(3)"))
    async with command("weather.py", "--port", "0", "--era", "2025", cwd=folder) as (program, _):
        await program.ready("2025")
        call = await program.call("2025", "tools/call", {"name": "forecast", "arguments": {"city": "Oslo"}})
        ended = await program.ended(call)
        assert ended["state"] == "failed"
        assert "3" in ended["error"]["message"]
        lost = await program.event("connection", era="2025", state="failed")
        assert "lost" in lost["error"]
        assert await program.result("2025", "ping") == {}
        connected = [event for event in program.seen if event["kind"] == "connection"]
        assert connected[-1]["state"] == "ready"


async def test_a_file_that_cannot_be_loaded_is_shown(folder: Path) -> None:
    (folder / "weather.py").write_text("import nothing_of_this_name\n")
    async with command("weather.py", "--port", "0", cwd=folder) as (program, _):
        failed = await program.event("connection", era="2026", state="failed")
        assert "nothing_of_this_name" in failed["error"]
        assert (await program.get("/api/state")).json["eras"]["2026"]["state"] == "failed"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("weather.py", "--port", "99999"), "port"),
        (("weather.py", "--header", "A: b"), "--header"),
        (("https://example.com/mcp", "--env", "A=b"), "--env"),
        (("nothing.json:entry",), "nothing.json"),
        (("weather.py", "--era", "1999"), "era"),
        (("nothing.py:server",), "No such file: nothing.py"),
    ],
)
async def test_a_wrong_command_line_is_one_clear_line(folder: Path, words: tuple[str, ...], reason: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gemel", "dev", *words, "--no-open"), stderr=asyncio.subprocess.PIPE, cwd=folder
    )
    _, errors = await process.communicate()
    assert process.returncode in (1, 2)
    assert errors.decode().startswith("gemel: ")
    assert len(errors.decode().splitlines()) == 1
    assert reason in errors.decode()


async def test_without_the_extra_it_says_what_reloading_needs(folder: Path) -> None:
    code = "import sys; sys.modules['watchfiles'] = None; from gemel.cli import main; sys.exit(main(sys.argv[1:]))"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, "dev", "weather.py", "--no-open", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
    )
    assert process.stdout is not None
    async with asyncio.timeout(20):
        assert (await process.stdout.readline()).endswith(b"(Ctrl-C ends it)\n")
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert process.returncode == 0
    assert errors.decode() == "gemel: to reload when a file changes needs the extra cli: pip install 'gemel[cli]'\n"


@pytest.mark.long
async def test_the_terminal_says_why_a_file_cannot_be_loaded_and_when_it_is_mended(folder: Path) -> None:
    file = folder / "weather.py"
    file.write_text("def broken(:\n")
    words = (sys.executable, "-m", "gemel", "dev", "weather.py", "--no-open", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, cwd=folder
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            first = (await process.stderr.readline()).decode()
            file.write_text("import no_such_module\n")
            second = (await process.stderr.readline()).decode()
            file.write_text(SERVER)
            third = (await process.stderr.readline()).decode()
            process.send_signal(signal.SIGINT)
            rest = await process.stderr.read()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert first.startswith("gemel: weather can't be shown: weather.py can't be imported: SyntaxError: ")
    reason = "weather.py can't be imported: No module named 'no_such_module'"
    assert second == f"gemel: weather can't be shown: {reason} (it is started again when a file changes)\n"
    assert third == "gemel: weather is connected again\n"
    assert rest == b""
