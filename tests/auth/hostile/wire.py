"""Sends hostile requests to a port on loopback, each on its own connection, and reads the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from tests.auth.hostile.cases import Request, Response

#: Seconds after which a request counts as unanswered.
PATIENCE = 10.0
#: Requests at the same time.
AT_ONCE = 8

CaseT = TypeVar("CaseT")


async def exchange(port: int, request: Request) -> Response:
    """Send a request and read the answer; of a stream only the head.

    Args:
        port: The port on 127.0.0.1.
        request: The request. `@PORT@` in a header is replaced by the port.

    Returns:
        The answer, with status 0 when there was none.
    """
    names = {name.lower() for name, _ in request.headers}
    lines = [f"{request.method} {request.path} HTTP/1.1"]
    if "host" not in names:
        lines.append(f"Host: 127.0.0.1:{port}")
    lines += [f"{name}: {value.replace('@PORT@', str(port))}" for name, value in request.headers]
    lines += [f"Content-Length: {len(request.body)}", "Connection: close", "", ""]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                writer.write("\r\n".join(lines).encode("latin-1") + request.body)
                await writer.drain()
            return await _read(reader, request.method)
    except TimeoutError:
        return Response(0, (), b"no answer in time")
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader, method: str) -> Response:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        pairs = (line.partition(":") for line in lines)
        headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
        response = Response(int(status_line.split(" ")[1]), headers)
        if method == "HEAD" or any("text/event-stream" in value for value in response.all("content-type")):
            return response
        return response._replace(body=await reader.read())
    except (asyncio.IncompleteReadError, ConnectionError):
        return Response(0)


async def problems(cases: Iterable[CaseT], run: Callable[[CaseT], Awaitable[str | None]]) -> list[str]:
    """Run cases, some at a time, and return what is wrong.

    Args:
        cases: The cases.
        run: Runs one and says what is wrong with its answer, None if nothing is.

    Returns:
        The problems, in the order of the cases.
    """
    results: list[str] = []
    remaining = iter(cases)
    while batch := list(islice(remaining, AT_ONCE)):
        results += [text for text in await asyncio.gather(*map(run, batch)) if text is not None]
    return results
