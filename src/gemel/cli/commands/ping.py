"""`gemel ping`: how long a server takes to answer. The stateless era has no `ping`; there, `server/discover` is sent."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from gemel.cli.connect import client_for
from gemel.cli.console import Console, as_json, describe_server, until_interrupted
from gemel.client.client import Client
from gemel.client.terminal.display import write
from gemel.errors import CallError
from gemel.schema.methods import method_in
from gemel.visible import escape_line


async def run(options: argparse.Namespace) -> int:
    """Print a line for each request and a summary, also after Ctrl-C. The exit code is 1 if an answer is missing."""
    #: Milliseconds of each request, None for one without an answer.
    times: list[float | None] = []
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            method = "server/discover" if method_in("ping", client.protocol_version) is None else "ping"
            if not options.json:
                console.print(escape_line(f"{describe_server(client)}, by {method}"))
            with until_interrupted():
                await _send_all(client, options, times)
            server = {"protocolVersion": client.protocol_version, "method": method}
    if options.json:
        write(sys.stdout, f"{as_json({**server, **_statistics(times), 'times': times})}\n")
    else:
        write(sys.stdout, f"{_summary(times)}\n")
    return 0 if times and None not in times else 1


async def _send_all(client: Client, options: argparse.Namespace, times: list[float | None]) -> None:
    while not options.count or len(times) < options.count:
        if times:
            await asyncio.sleep(options.interval)
        times.append(None)
        start = time.perf_counter()
        try:
            async with asyncio.timeout(options.timeout):
                await client.ping()
            times[-1] = round((time.perf_counter() - start) * 1000, 3)
            result = f"{times[-1]:.1f} ms"
        except CallError as exc:
            result = str(exc)
        except TimeoutError:
            result = f"no answer within {options.timeout:g} seconds"
        if not options.json:
            write(sys.stdout, f"{len(times)}: {escape_line(result)}\n")


def _statistics(times: Sequence[float | None]) -> dict[str, object]:
    answered = [milliseconds for milliseconds in times if milliseconds is not None]
    statistics: dict[str, object] = {"sent": len(times), "answered": len(answered)}
    if answered:
        average = round(sum(answered) / len(answered), 3)
        statistics |= {"min": min(answered), "average": average, "max": max(answered)}
    return statistics


def _summary(times: Sequence[float | None]) -> str:
    statistics = _statistics(times)
    text = f"{statistics['sent']} sent, {statistics['answered']} answered"
    if "min" in statistics:
        text += f"; min {statistics['min']:.1f}, average {statistics['average']:.1f}, max {statistics['max']:.1f} ms"
    return text
