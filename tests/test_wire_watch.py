"""The watch over what Gemel sends: a bad message fails the test that made it, wherever it was sent, and no other test."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.source import ROOT
from tests.tap.taps import Sent, likeness
from tests.wire_schema import Misfit
from tests.wire_table import REVISIONS
from tests.wire_watch import VARIABLES, Watch, judge

FIRST, *_, LATEST, STATELESS = REVISIONS

PLANTED = """
import sys
import pytest
from gemel import Client, Server

async def short(ctx, call_next):
    result = await call_next(ctx)
    return {"content": "no list"} if ctx.method == "tools/call" else result

server = Server("planted")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

async def call(client):
    answer = await client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert "content" in answer

async def test_good():
    async with Client(server, era="2025") as client:
        await call(client)

@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_bad_in_memory(era):
    bad = Server("bad", middleware=[short])
    bad.tool(add)
    async with Client(bad, era=era) as client:
        await call(client)

async def test_bad_over_http():
    bad = Server("bad", middleware=[short])
    bad.tool(add)
    from tests.transports.http_rig import serving
    async with serving(bad) as site, Client(f"http://127.0.0.1:{site.port}/mcp") as client:
        await call(client)

async def test_bad_question():
    async with Client(server, era="2025") as client:
        with pytest.raises(Exception):
            await client.request("tools/call", {"name": 5})

async def test_bad_notification():
    async with Client(server, era="2025") as client:
        await client.notify("notifications/progress", {"progressToken": 1})

@pytest.mark.foreign_words("it is meant")
async def test_bad_on_purpose():
    async with Client(server, era="2025") as client:
        await client.notify("notifications/progress", {"progressToken": 1})

async def test_bad_in_another_process():
    async with Client([sys.executable, __file__]) as client:
        await call(client)

if __name__ == "__main__":
    server.add_middleware(short)
    server.run()
"""
SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""
BAD = {
    "test_bad_in_memory[2025]": "server at 2025-11-25:\nresult.content: must be a list",
    "test_bad_in_memory[2026]": "server at 2026-07-28:\nresult.content: must be a list",
    "test_bad_over_http": "server at 2026-07-28:\nresult.content: must be a list",
    "test_bad_question": "client at 2025-11-25:\nparams.name: must be string",
    "test_bad_notification": "client at 2025-11-25:\nparams.progress: missing",
    "test_bad_in_another_process": "server at 2026-07-28:\nresult.content: must be a list",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of tests with planted messages."""
    directory = tmp_path_factory.mktemp("planted")
    (directory / "test_planted.py").write_text(PLANTED)
    (directory / "pytest.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.wire_watch", "-p", "no:cacheprovider", "-q"]
    command += ["-c", str(directory / "pytest.ini"), "--rootdir", str(directory), str(directory)]
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=clean, stdin=subprocess.DEVNULL
    )
    return done.stdout + done.stderr


def complaints(report: str) -> dict[str, str]:
    """The section about each test in which something bad was sent."""
    sections = re.split(r"^_+ ERROR at teardown of (\S+) _+$", report, flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


@pytest.mark.parametrize("test", BAD)
def test_a_bad_message_fails_the_test_that_made_it(report: str, test: str) -> None:
    assert BAD[test] in complaints(report)[test]


def test_nobody_else_is_blamed_and_what_is_meant_is_spared(report: str) -> None:
    assert set(complaints(report)) == set(BAD), report
    assert "8 passed" in report


def test_the_messages_are_counted(report: str) -> None:
    assert re.search(r"held against .*: 2025-11-25 [1-9]\d*, 2026-07-28 [1-9]", report)


# ---------------------------------------------------------------- what is checked, and what need not be again


def result(request_id: str, content: str = "[]", revision: str = LATEST) -> Sent:
    text = f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"content":{content}}}}}'
    return Sent("server", revision, text.encode(), "tools/call")


def test_messages_that_differ_in_ids_only_are_alike() -> None:
    assert likeness(result("1")) == likeness(result("27"))
    assert likeness(result('"a"')) == likeness(result('"b-2"'))
    assert likeness(result("1")) != likeness(result('"1"'))
    assert likeness(result("1")) != likeness(result("1", revision=FIRST))
    assert likeness(result("1")) != likeness(result("1", "[{}]"))
    assert likeness(result("1")) != likeness(result("1.5", '"x"'))


def test_a_misfit_is_found_every_time_and_told_once() -> None:
    watch = Watch()
    watch.overheard += [result("1"), result("1", '"x"'), result("1", '"x"')]
    assert len(watch.misfits()) == 1
    assert watch.misfits() == []
    watch.overheard += [result("2"), result("2", '"x"')]
    assert len(watch.misfits()) == 1
    assert watch.counts == {LATEST: 2}


def test_a_request_is_of_the_revision_that_it_claims() -> None:
    info = '{"name":"x","version":"1"}'
    hello = f'"params":{{"protocolVersion":"{FIRST}","capabilities":{{}},"clientInfo":{info}}}'
    assert judge(Sent("client", LATEST, f'{{"jsonrpc":"2.0","id":1,"method":"initialize",{hello}}}'.encode())) == FIRST
    claim = f'"_meta":{{"io.modelcontextprotocol/protocolVersion":"{STATELESS}"}}'
    with pytest.raises(Misfit, match="clientCapabilities: missing"):
        judge(Sent("client", LATEST, f'{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{claim}}}}}'.encode()))


def test_what_answers_a_method_of_ones_own_has_any_shape() -> None:
    judge(Sent("server", LATEST, b'{"jsonrpc":"2.0","id":1,"result":{"any":1}}', "acme/search"))
