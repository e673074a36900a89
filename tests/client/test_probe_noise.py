"""What servers of the handshake era write to standard error about the probe: people see it only if connecting fails."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gemel import Client, ConnectFailed, Limits
from gemel.transports.stream.options import Shown

#: Complains about the probe in one of several ways; argument 2 says that it refuses the handshake, too.
SERVER = """
import json, sys
form, is_broken = sys.argv[1], len(sys.argv) > 2
print("began", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    error = result = None
    if message["method"] == "server/discover":
        if form == "silent":
            continue
        complaint = "Failed to validate request\\n  unknown 'server/discover'\\n  see the manual\\n"
        sys.stderr.write(complaint)
        sys.stderr.flush()
        if form == "ends":
            raise SystemExit(1)
        error = {"code": -32601, "message": "Method not found"}
    elif is_broken:
        error = {"code": -32603, "message": "no"}
    elif message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    else:
        print("asked for", message["method"], file=sys.stderr, flush=True)
        result = {"tools": []}
    if "id" in message:
        answer = {"error": error} if error else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return str(file)


@pytest.mark.parametrize("form", ["refuses", "ends", "silent"])
async def test_it_is_not_shown_once_the_server_is_connected(form: str, path: str) -> None:
    lines: list[str] = []
    command = [sys.executable, path, form]
    limits = Limits(probe=0.2 if form == "silent" else 10.0)  # longer than a server takes to start
    async with Client(command, stderr=Shown(lines.append), limits=limits) as client:
        assert await client.list_tools() == []
        assert client.era == "2025"
    assert "asked for tools/list" in lines
    assert not [line for line in lines if "validate" in line or "manual" in line]
    if form != "refuses":  # there it may have been written together with the complaint
        assert "began" in lines


async def test_it_is_shown_if_connecting_fails(path: str) -> None:
    lines: list[str] = []
    with pytest.raises(ConnectFailed, match="no"):
        await Client([sys.executable, path, "refuses", "broken"], stderr=Shown(lines.append)).connect()
    assert lines == ["began", "Failed to validate request", "  unknown 'server/discover'", "  see the manual"]


async def test_a_function_gets_everything_at_once(path: str) -> None:
    lines: list[str] = []
    async with Client([sys.executable, path, "refuses"], stderr=lines.append):
        pass
    assert "  unknown 'server/discover'" in lines


def gemel(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gemel", *words], capture_output=True, text=True, timeout=60)


def test_the_command_line_holds_it_back_too(path: str) -> None:
    done = gemel("list", f"{sys.executable} {path} refuses")
    assert (done.returncode, "validate" in done.stderr) == (0, False), done.stderr
    assert "asked for tools/list" in done.stderr
    done = gemel("list", f"{sys.executable} {path} refuses broken")
    assert (done.returncode, "unknown 'server/discover'" in done.stderr) == (1, True)
    assert done.stderr.splitlines()[-1].startswith("gemel: ")
    done = gemel("list", f"{sys.executable} {path} refuses", "--era", "2025")
    assert "began" in done.stderr


def test_a_program_that_lets_its_servers_inherit_standard_error_shows_it_so(
    path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def connect(*words: str) -> None:
        async with Client([sys.executable, path, *words]) as client:
            await client.list_tools()

    asyncio.run(connect("refuses"))
    assert "validate" not in capfd.readouterr().err
    with pytest.raises(ConnectFailed):
        asyncio.run(connect("refuses", "broken"))
    assert "see the manual" in capfd.readouterr().err
