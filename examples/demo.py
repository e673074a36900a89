"""One server, two eras, three transports: a client of each era calls it in memory, over stdio and over HTTP.

Everything shown is checked; the exit code is 0 only if all of it is right and everything has stopped. Loopback only.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

from demo_server import Forecast, Ticket, server

from hinge import Client, PeerError, ProgressParams, ToolCallError

SERVER = str(Path(__file__).with_name("demo_server.py"))
COMMAND = [sys.executable, "-m", "hinge", "run", SERVER]
#: Seconds for everything.
LIMIT = 20.0

Era = Literal["2025", "2026"]
REVISIONS: dict[Era, str] = {"2025": "2025-11-25", "2026": "2026-07-28"}

_COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class Wrong(Exception):
    """Something is not as it is shown."""


def check(right: bool, what: str) -> None:
    """Go on only if it is right."""
    if not right:
        raise Wrong(what)


def paint(code: str, text: str) -> str:
    """The text in a colour, on a terminal."""
    return f"\x1b[{code}m{text}\x1b[0m" if _COLOURS else text


def title(text: str, where: str) -> None:
    """The beginning of a part."""
    print(f"\n{paint('1', text)}  {paint('2', where)}", flush=True)


def show(what: str, asked: str, *answers: str) -> None:
    """One exchange: what it shows, what was asked, what came back."""
    first, *more = answers or ("",)
    print(f"  {paint('36', f'{what:<11}')} {asked:<22} {paint('2', '→')} {first}", flush=True)
    for answer in more:
        print(f"  {'':<11} {'':<22} {paint('2', '→')} {answer}", flush=True)


# ---------------------------------------------------------------- what is shown, the same for every transport and era


async def converse(target: Any, era: Era, where: str) -> None:
    """A whole conversation with the demo's server."""
    async with Client(target, era=era, on_elicit=answer) as client:
        about = client.server_info
        check(about is not None and about.name == "city-guide", "the server has the wrong name")
        check(client.protocol_version == REVISIONS[era], f"the revision is {client.protocol_version}")
        opened = "initialize" if era == "2025" else "server/discover"
        show("discovery", opened, f"{about and about.name} speaks {client.protocol_version}")

        tools = [tool.name for tool in await client.list_tools()]
        check(tools == ["forecast", "tour", "book", "wait", "how_often"], f"the tools are {tools}")
        show("tools", "tools/list", ", ".join(tools))

        await results(client)
        await progress(client)
        await failures(client)
        await question(client, era, f"{where} {era}")
        await cancellation(client, f"{where} {era}")


async def results(client: Client) -> None:
    """A typed call, and what lies beneath it."""
    found = await client.call_tool("forecast", {"city": "Oslo", "days": 2}, returns=Forecast)
    check(found.city == "Oslo" and [day.high for day in found.days] == [15.5, 14.5], f"the forecast is {found}")
    show("typed call", 'forecast("Oslo", 2)', *map(str, found.days))

    raw = await client.call_tool("forecast", {"city": "Oslo", "days": 1})
    wanted = {"city": "Oslo", "days": [{"name": "Monday", "high": 15.5}]}
    check(raw.structured_content == wanted, f"the structured content is {raw.structured_content}")
    show("structured", 'forecast("Oslo", 1)', str(raw.structured_content))


async def progress(client: Client) -> None:
    """Progress arrives before the result."""
    heard: list[str] = []

    def note(params: ProgressParams) -> None:
        heard.append(f"{params.progress:g}/{params.total or 0:g} {params.message}")

    result = await client.call_tool("tour", {"stops": 3}, on_progress=note)
    check(heard == ["1/3 stop 1", "2/3 stop 2", "3/3 stop 3"], f"the progress is {heard}")
    check(result.text == "Saw 3 sights.", f"the tour ended with {result.text}")
    show("progress", "tour(3)", ", ".join(heard), result.text)


async def failures(client: Client) -> None:
    """A tool that fails has a result; a tool that doesn't exist is an error."""
    try:
        await client.call_tool("forecast", {"city": "Oslo", "days": 30})
        fail("a failing tool raised nothing")
    except ToolCallError as exc:
        check("7 at most" in str(exc), f"the tool failed with {exc}")
        show("tool error", 'forecast("Oslo", 30)', f"ToolCallError: {exc}")
    try:
        await client.call_tool("forcast")
        fail("an unknown tool raised nothing")
    except PeerError as exc:
        check(exc.code == -32602 and "Did you mean" in str(exc), f"the error is {exc}")
        show("no tool", "forcast()", f"PeerError: {exc}")


def answer(form: Any) -> Mapping[str, Any]:
    """The user, who likes windows."""
    check("Which seat" in form.message, f"the question is {form.message}")
    return {"seat": "window"}


async def question(client: Client, era: Era, booking: str) -> None:
    """The tool asks the user. In the stateless era it runs again for that, but charges once."""
    ticket = await client.call_tool("book", {"city": "Oslo", "booking": booking}, returns=Ticket)
    runs = 1 if era == "2025" else 2
    check(ticket == Ticket("Oslo", "window", runs, 1), f"the ticket is {ticket}")
    show("elicitation", 'book("Oslo")', 'asked "Which seat to Oslo?", answered "window"', str(ticket))


async def cancellation(client: Client, name: str) -> None:
    """The client loses interest; the handler learns of it."""
    waiting = asyncio.Event()
    call = asyncio.create_task(client.call_tool("wait", {"name": name}, on_progress=lambda _: waiting.set()))
    await waiting.wait()
    call.cancel()
    await asyncio.wait([call])
    check(call.cancelled(), "the cancelled call came to an end")

    for _ in range(100):
        if (await client.call_tool("how_often", {"what": f"{name} cancelled"})).text == "1":
            break
        await asyncio.sleep(0.02)
    else:
        fail("the handler was not cancelled")
    show("cancel", "wait(), then cancelled", "the handler was told to stop")


def fail(what: str) -> NoReturn:
    """It is wrong."""
    raise Wrong(what)


# ---------------------------------------------------------------- the transports


async def in_memory() -> None:
    """Client and server in this process."""
    for era in REVISIONS:
        title(f"Memory, era {era}", "Client(server)")
        await converse(server, era, "memory")


async def over_stdio() -> None:
    """The client starts the server as a child process."""
    for era in REVISIONS:
        title(f"stdio, era {era}", 'Client("hinge run demo_server.py")')
        await converse(COMMAND, era, "stdio")


async def over_http() -> None:
    """A server process for both eras at once."""
    async with http_server() as url:
        for era in REVISIONS:
            title(f"HTTP, era {era}", f'hinge run demo_server.py --http; Client("{url}")')
            await converse(url, era, "http")


@asynccontextmanager
async def http_server() -> AsyncIterator[str]:
    """The server as a process on a free port, ended by SIGTERM; yields its URL."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--http", "--port", "0", stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        check(line.startswith("Serving MCP at http://127.0.0.1:"), f"the server said {line!r}")
        yield line.split()[-1]
        process.terminate()
        said = (await process.stderr.read()).decode()
        check(await process.wait() == 0, f"the server ended with {process.returncode}: {said}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def has_children() -> bool:
    """Whether a process that this one started still runs, or was not waited for."""
    if not hasattr(os, "WNOHANG"):
        return False
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


async def main() -> None:
    """All transports, one after the other."""
    start = time.monotonic()
    parts: list[Callable[[], Any]] = [in_memory, over_stdio, over_http]
    async with asyncio.timeout(LIMIT):
        for part in parts:
            await part()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    check(not left, f"tasks are left: {left}")
    check(not has_children(), "a process is left")
    print(
        f"\n{paint('32', 'All as it should be')}, in {time.monotonic() - start:.1f} seconds; every server has stopped."
    )


if __name__ == "__main__":
    print("Hinge: one server, called by clients of both eras over three transports")
    try:
        asyncio.run(main())
    except (Wrong, TimeoutError) as exc:
        print(f"\n{paint('31', 'Not as it should be')}: {str(exc) or f'it took more than {LIMIT:g} seconds'}")
        sys.exit(1)
