"""The example of a host, with somebody at its terminal who uses all of it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.ports import free_port
from tests.source import ROOT
from tests.typist import Typist, at_the_terminal

ENVIRONMENT = {"PATH": f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"}


@asynccontextmanager
async def cafe(port: int) -> AsyncIterator[None]:
    """The server over HTTP, which the host has to do without until it is there."""
    command = [sys.executable, "-m", "gemel", "run", "examples/host_servers.py:cafe", "--http", "--port", str(port)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.timeout(120)  # it starts several processes
async def test_a_host_lives_through_all_that_its_servers_do() -> None:
    port = free_port()
    environment = {**ENVIRONMENT, "CAFE": f"http://127.0.0.1:{port}/mcp"}
    command = [sys.executable, str(ROOT / "examples" / "host.py"), str(ROOT / "examples" / "host.json")]
    async with at_the_terminal(command, environment, columns=120, directory=ROOT) as (typist, process):
        await begins(typist)
        await asks(typist)
        async with cafe(port):
            await changes(typist)
        await typist.sees("* Server 'cafe' is lost")
        await typist.asks("/servers", "  library      ready\n")
        async with cafe(port):
            await typist.sees("* cafe changed the tools: ")
            await typist.asks("cafe_search word=tea", "cafe: ")
        typist.type("\x04")
    assert process.returncode == 0
    assert "Traceback" not in typist.seen
    assert "\x1b" not in typist.seen, "only prompts may control the terminal"


async def begins(typist: Typist) -> None:
    """One server that can't start and one that isn't there yet disturb nobody."""
    shown = await typist.sees("you>")
    assert "  city         ready\n  library      ready\n" in shown
    assert "  cafe         failed: No connection" in shown
    assert "  broken       failed: Can't start there-is-no-such-program" in shown
    await typist.asks("forecast city=Oslo days=1", "city: ")
    await typist.asks("forecast city=Oslo days=30", "city: Nobody knows 30 days ahead")
    await typist.asks("forecast Oslo", "! 'Oslo' is not an argument: write name=value")
    await typist.asks("'", "! No closing quotation")
    await typist.asks("dance", "! Which tool? /tools shows them.")
    await typist.asks("/prompt review title=Dune", "user: Write a short review of 'Dune'.")
    await typist.asks("/read x://y", "! No server lists 'x://y'")
    await typist.asks("/help", "/quit")


async def asks(typist: Typist) -> None:
    """Consent, forms, the model, Ctrl-C: each where it belongs."""
    await typist.asks("borrow", "── borrow needs more arguments\n")
    await typist.answers("title:", "Dune")
    await typist.answers('Call borrow with {"title": "Dune"}? [y/n]:', "y")
    await typist.sees("── library (gemel run examples/host_servers.py:library) asks\n")
    await typist.answers("weeks [two]:", "four")
    await typist.answers("reminder [yes]:", "n")
    await typist.answers("Send this?", "y")
    await typist.sees("library: 'Dune' is yours for four weeks.\nyou>")
    typist.type("borrow title=Dune\n")
    await typist.answers("[y/n]:", "y")
    await typist.sees("weeks [two]:")
    typist.type("\x03")
    await typist.sees("library: 'Dune' stays here: cancel\nyou>")
    for asked, sent, shown in (("n", "", "No idea"), ("y", "n", "No idea"), ("y", "y", "Try “The Hound”")):
        typist.type("recommend reader=Ada\n")
        await typist.answers("Ask the model? [y/n]:", asked)
        if sent:
            await typist.answers("Send it? [y/n]:", sent)
        await typist.sees(f"library: {shown}")
        await typist.sees("you>")
    typist.type("wait name=me\n")
    await typist.answers("[y/n]:", "y")
    await typist.sees("… waiting")
    typist.type("\x03")
    await typist.sees("you>")


async def changes(typist: Typist) -> None:
    """A server that comes late, names that two of them have, a tool that appears."""
    await typist.sees("* cafe changed the tools: +library_search +cafe_search +open_kitchen -search\nyou>")
    await typist.asks("cafe_search word=tea", 'cafe: ["tea soup","tea pie"]')
    await typist.asks("library_search word=tea", 'library: ["A short history of tea"')
    typist.type("open_kitchen\n")
    await typist.answers("[y/n]:", "y")
    await typist.sees("* cafe changed the tools: +order\n")
    typist.type("order dish=pie plates=2\n")
    await typist.answers('Call order with {"dish": "pie", "plates": 2}? [y/n]:', "y")
    await typist.sees("cafe: 2 × pie, coming up.\nyou>")
