"""Run the client of this project against hostile servers: `python -m tests.hostile.clients --help`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from gemel import Client, GemelError, Limits
from gemel.testing import ScriptedPeer
from tests.hostile.cases import Era, Json
from tests.hostile.client_cases import (
    AskCase,
    ClientCase,
    ResponseCase,
    answer,
    ask_cases,
    client_cases,
    correct,
    http_response,
    response_cases,
)
from tests.hostile.run import Outcome, report

#: Seconds until a call that gets no answer counts as hanging.
IDLE = 0.5
#: The answer to what is no POST.
NO_GET = b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LIMITS = Limits(probe=IDLE, connect=IDLE, call_idle=IDLE, call_total=2 * IDLE, reconnects=0, retries=0)

OPERATIONS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "tools/list": lambda client: client.list_tools(),
    "tools/call": lambda client: client.call_tool("add", {"a": 1}),
    "prompts/list": lambda client: client.list_prompts(),
    "prompts/get": lambda client: client.get_prompt("greet"),
    "resources/list": lambda client: client.list_resources(),
    "resources/templates/list": lambda client: client.list_resource_templates(),
    "resources/read": lambda client: client.read_resource("test://text"),
    "completion/complete": lambda client: client.complete(prompt="greet", argument="who", value="A"),
}


async def serve_script(
    peer: ScriptedPeer, era: Era, method: str, answers: Sequence[bytes], tool: Json | None = None
) -> None:
    """Answer requests correctly, except the first one of a method. `tool` is the tool that is listed."""
    left = list(answers)
    with contextlib.suppress(AssertionError):
        while True:
            message = await peer.expect()
            if "method" not in message or "id" not in message:
                continue
            if message["method"] == method and left:
                for text in left:
                    await peer.send(text.replace(b"@ID@", json.dumps(message["id"]).encode()))
                left = []
            else:
                result = correct(message["method"], era)
                if tool is not None and message["method"] == "tools/list":
                    result = {**result, "tools": [tool]}
                await peer.answer(message, result)


async def run_client_case(case: ClientCase) -> str | None:
    """Run one case; describe what is wrong."""

    async def script(peer: ScriptedPeer) -> None:
        await serve_script(peer, case.era, case.method, case.answers, case.tool)

    async with ScriptedPeer(script, patience=5) as peer:
        client = Client(peer, era=case.era, limits=LIMITS, reconnect=False)
        try:
            if case.tool is not None:
                end = await ending(client, OPERATIONS["tools/list"])
                if end != "ok":
                    return f"the list of tools ended with {end}"
            end = await ending(client, OPERATIONS.get(case.method))
            if end not in case.ends:
                return f"it ended with {end}, not {' or '.join(case.ends)}"
            if missing := not_noted(client, case.warns):
                return missing
            if case.alive:
                end = await ending(client, OPERATIONS["prompts/list"])
                return None if end == "ok" else f"a further request ended with {end}"
        finally:
            await client.close()
            await peer.close()
    return None


def not_noted(client: Client, expected: Sequence[str]) -> str | None:
    """Describe which deviations the client has not noted; None if it has noted all."""
    noted = [deviation.name for deviation in client.warnings]
    missing = [name for name in expected if name not in noted]
    return f"it noted {noted}, not {missing}" if missing else None


async def ending(client: Client, operation: Callable[[Client], Awaitable[object]] | None) -> str:
    """Connect if need be, do one thing, and return how it ended."""
    try:
        async with asyncio.timeout(5):
            if not client.connected:
                await client.connect()
            if operation is not None:
                await operation(client)
    except GemelError as exc:
        return type(exc).__name__
    except TimeoutError:
        return "nothing"
    except Exception as exc:
        return f"{type(exc).__name__} (not an error of Gemel)"
    return "ok"


async def run_ask_case(case: AskCase) -> str | None:
    """Run one case; describe what is wrong."""
    async with ScriptedPeer(patience=2) as peer:
        client = Client(peer, era="2025", limits=LIMITS, on_elicit=lambda form: {"value": 7})
        opening = asyncio.ensure_future(client.connect())
        try:
            await peer.greet("2025")
            await opening
            await peer.send({"id": "asked", **case.message})
            await peer.send({"id": "after", "method": "ping"})
            answers: list[Json] = []
            while len(answers) < 2:
                message = await peer.expect()
                if "method" not in message:
                    answers.append(message)
            (own,) = [message for message in answers if message.get("id") != "after"]
            code = own.get("error", {}).get("code")
            if own.get("id") not in ("asked", None):
                return f"the id is {own.get('id')!r}"
            if case.codes and code not in case.codes:
                return f"the code is {code}, not {case.codes}: {own}"
            if case.warns and code is not None:
                return f"it is refused, though it can be understood: {own}"
            return not_noted(client, case.warns)
        except AssertionError as exc:
            return str(exc)
        finally:
            opening.cancel()
            await client.close()


def _longer(found: re.Match[bytes], grown: int) -> bytes:
    """Return the header of a length with another one."""
    return b"Content-Length: %d" % (int(found[1]) + grown)


@contextlib.asynccontextmanager
async def serve_posts(choose: Callable[[Json], bytes | None]) -> AsyncIterator[str]:
    """Serve HTTP and yield the URL: what `choose` returns for a message is sent as it is, else a correct answer.

    `@ID@` stands for the id of the request. Only POST is served, one request for each connection.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            writer.write(_answer_to(json.loads(await reader.readexactly(lengths[0])), choose) if lengths else NO_GET)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


def _answer_to(message: Json, choose: Callable[[Json], bytes | None]) -> bytes:
    """Return the bytes that answer the POST of a message."""
    chosen = choose(message)
    if chosen is None and "id" not in message:
        return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    response = http_response(answer(result=correct(message["method"], "2026"))) if chosen is None else chosen
    identity = json.dumps(message.get("id")).encode()
    grown = response.partition(b"\r\n\r\n")[2].count(b"@ID@") * (len(identity) - len(b"@ID@"))  # it is known only now
    data = response.replace(b"@ID@", identity)
    return re.sub(rb"Content-Length: (\d+)", lambda found: _longer(found, grown), data)


async def run_response_case(case: ResponseCase) -> str | None:
    """Run one case; describe what is wrong."""
    async with serve_posts(lambda message: case.response if message["method"] == "tools/list" else None) as url:
        client = Client(url, era="2026", limits=LIMITS)
        try:
            end = await ending(client, OPERATIONS["tools/list"])
            if end not in case.ends:
                return f"it ended with {end}, not {' or '.join(case.ends)}"
            if missing := not_noted(client, case.warns):
                return missing
            end = await ending(client, OPERATIONS["prompts/list"])
            return None if end == "ok" else f"a further request ended with {end}"
        finally:
            await client.close()


async def run_all(only: str = "", every: int = 1) -> list[Outcome]:
    """Run the cases whose names contain a text, or only every so many."""
    outcomes: list[Outcome] = []
    tables: list[tuple[str, Sequence[Any], Callable[[Any], Awaitable[str | None]]]] = [
        ("client", client_cases(), run_client_case),
        ("asked", ask_cases(), run_ask_case),
        ("response", response_cases(), run_response_case),
    ]
    for route, cases, run in tables:
        for case in [case for case in cases if only in case.name][::every]:
            outcomes.append(Outcome(route, case.name, await run(case)))
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile.clients", description="Hostile servers for the client."
    )
    parser.add_argument("--only", default="", help="cases whose names contain this text")
    parser.add_argument("--every", type=int, default=1, help="only every so many cases")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every case")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    outcomes = asyncio.run(run_all(options.only, options.every))
    return 0 if report(outcomes, verbose=options.verbose, own=True) else 1


if __name__ == "__main__":
    sys.exit(main())
