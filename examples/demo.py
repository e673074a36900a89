"""One server, two eras, three transports: a client of each era calls it in memory, over stdio and over HTTP.

Every value that is printed is checked. The exit code is 0 only if all checks pass and all tasks and processes have ended.
Only loopback addresses are used.
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

from gemel import Client, PeerError, ProgressParams, ToolCallError

SERVER = str(Path(__file__).with_name("demo_server.py"))
COMMAND = [sys.executable, "-m", "gemel", "run", SERVER]
#: Time limit for the whole demo, in seconds.
LIMIT = 20.0

Era = Literal["2025", "2026"]
REVISIONS: dict[Era, str] = {"2025": "2025-11-25", "2026": "2026-07-28"}

_COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class Wrong(Exception):
    """A check failed."""


def check(right: bool, what: str) -> None:
    """Raise Wrong unless the condition holds."""
    if not right:
        raise Wrong(what)


def paint(code: str, text: str) -> str:
    """Colour the text if standard output is a terminal."""
    return f"\x1b[{code}m{text}\x1b[0m" if _COLOURS else text


def title(text: str, where: str) -> None:
    """Print the heading of a part."""
    print(f"\n{paint('1', text)}  {paint('2', where)}", flush=True)


def show(what: str, asked: str, *answers: str) -> None:
    """Print one exchange: its topic, the request, the response."""
    first, *more = answers or ("",)
    print(f"  {paint('36', f'{what:<11}')} {asked:<22} {paint('2', '→')} {first}", flush=True)
    for answer in more:
        print(f"  {'':<11} {'':<22} {paint('2', '→')} {answer}", flush=True)


# ---------------------------------------------------------------- the calls, the same for every transport and era


async def run_calls(target: Any, era: Era, where: str) -> None:
    """Make all calls of the demo with one client."""
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
        await elicitation(client, era, f"{where} {era}")
        await cancellation(client, f"{where} {era}")


async def results(client: Client) -> None:
    """Call a tool with a typed result, and with the raw structured content."""
    found = (await client.call_tool("forecast", {"city": "Oslo", "days": 2}, returns=Forecast)).data
    check(found.city == "Oslo" and [day.high for day in found.days] == [15.5, 14.5], f"the forecast is {found}")
    show("typed call", 'forecast("Oslo", 2)', *map(str, found.days))

    raw = await client.call_tool("forecast", {"city": "Oslo", "days": 1})
    expected = {"city": "Oslo", "days": [{"name": "Monday", "high": 15.5}]}
    check(raw.structured_content == expected, f"the structured content is {raw.structured_content}")
    show("structured", 'forecast("Oslo", 1)', str(raw.structured_content))


async def progress(client: Client) -> None:
    """Receive progress before the result."""
    updates: list[str] = []

    def note(params: ProgressParams) -> None:
        updates.append(f"{params.progress:g}/{params.total or 0:g} {params.message}")

    result = await client.call_tool("tour", {"stops": 3}, on_progress=note)
    check(updates == ["1/3 stop 1", "2/3 stop 2", "3/3 stop 3"], f"the progress is {updates}")
    check(result.text == "Saw 3 sights.", f"the tour ended with {result.text}")
    show("progress", "tour(3)", ", ".join(updates), result.text)


async def failures(client: Client) -> None:
    """A failing tool raises ToolCallError; an unknown tool raises PeerError."""
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
    """Answer the elicitation in place of a user."""
    check("Which seat" in form.message, f"the elicitation is {form.message}")
    return {"seat": "window"}


async def elicitation(client: Client, era: Era, booking: str) -> None:
    """The tool requests input from the user. In the stateless era it runs twice, but charges once."""
    ticket = (await client.call_tool("book", {"city": "Oslo", "booking": booking}, returns=Ticket)).data
    runs = 1 if era == "2025" else 2
    check(ticket == Ticket("Oslo", "window", runs, 1), f"the ticket is {ticket}")
    show("elicitation", 'book("Oslo")', '"Which seat to Oslo?", answered "window"', str(ticket))


async def cancellation(client: Client, name: str) -> None:
    """Cancelling a call cancels the handler on the server."""
    waiting = asyncio.Event()
    call = asyncio.create_task(client.call_tool("wait", {"name": name}, on_progress=lambda _: waiting.set()))
    await waiting.wait()
    call.cancel()
    await asyncio.wait([call])
    check(call.cancelled(), "the call was not cancelled")

    for _ in range(100):
        if (await client.call_tool("how_often", {"what": f"{name} cancelled"})).text == "1":
            break
        await asyncio.sleep(0.02)
    else:
        fail("the handler was not cancelled")
    show("cancel", "wait(), then cancelled", "the handler was cancelled")


def fail(what: str) -> NoReturn:
    """Raise Wrong."""
    raise Wrong(what)


# ---------------------------------------------------------------- the transports


async def in_memory() -> None:
    """Client and server in this process."""
    for era in REVISIONS:
        title(f"Memory, era {era}", "Client(server)")
        await run_calls(server, era, "memory")


async def over_stdio() -> None:
    """The client starts the server as a child process, once per era."""
    for era in REVISIONS:
        title(f"stdio, era {era}", 'Client("gemel run demo_server.py")')
        await run_calls(COMMAND, era, "stdio")


async def over_http() -> None:
    """One server process for both eras."""
    async with http_server() as url:
        for era in REVISIONS:
            title(f"HTTP, era {era}", f'gemel run demo_server.py --http; Client("{url}")')
            await run_calls(url, era, "http")


@asynccontextmanager
async def http_server() -> AsyncIterator[str]:
    """Run the server as a process on a free port and yield its URL; stop it with SIGTERM."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--http", "--port", "0", stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        check(line.startswith("Serving MCP at http://127.0.0.1:"), f"the server printed {line!r}")
        yield line.split()[-1]
        process.terminate()
        output = (await process.stderr.read()).decode()
        check(await process.wait() == 0, f"the server exited with {process.returncode}: {output}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def has_children() -> bool:
    """Return whether a child process still runs or was not waited for."""
    if not hasattr(os, "WNOHANG"):
        return False
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


async def main() -> None:
    """Run the demo on all transports."""
    start = time.monotonic()
    parts: list[Callable[[], Any]] = [in_memory, over_stdio, over_http]
    async with asyncio.timeout(LIMIT):
        for part in parts:
            await part()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    check(not left, f"tasks are left: {left}")
    check(not has_children(), "a process is left")
    print(f"\n{paint('32', 'All checks passed')} in {time.monotonic() - start:.1f} seconds; all servers have stopped.")


if __name__ == "__main__":
    print("Gemel: one server, called by clients of both eras over three transports")
    try:
        asyncio.run(main())
    except (Wrong, TimeoutError) as exc:
        print(f"\n{paint('31', 'A check failed')}: {str(exc) or f'the demo took more than {LIMIT:g} seconds'}")
        sys.exit(1)
