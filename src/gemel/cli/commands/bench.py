"""`gemel bench`: how many calls a second a server answers, how long they take, and what they cost a local program."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from gemel.cli.arguments.target import ERAS
from gemel.cli.commands.call import suggest_tool
from gemel.cli.connect import client_for, time_limits
from gemel.cli.console import Console, as_json, until_interrupted
from gemel.cli.measurement import Measurement
from gemel.cli.values import parse_arguments
from gemel.client.client import Client
from gemel.client.content import content_to_text
from gemel.client.terminal.display import write
from gemel.errors import GemelError, StartError
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.schema.base import Implementation
from gemel.schema.methods import method_in
from gemel.visible import escape_line

#: Seconds of a run without --seconds and --calls.
_SECONDS = 5.0
#: Seconds between two updates of the progress bar.
_UPDATE = 0.2
#: The part of a core that the client may use before it is said that it limits the rate.
_BUSY = 0.9
#: Makes one call. Returns the text of a failure, None for success.
Send = Callable[[], Awaitable[str | None]]


async def run(options: argparse.Namespace) -> int:
    """Measure and print, also after Ctrl-C. The exit code is 1 if a call failed or none was answered."""
    runs: list[dict[str, Any]] = []
    head: dict[str, Any] = {}
    # A retry would hide a failure. A connection for each caller: waiting for one is not the server's time.
    limits = Limits(
        retries=0,
        connections=max(256, options.concurrency),
        pending=max(10_000, options.concurrency),
        connect=DEFAULT_LIMITS.connect if options.timeout is None else options.timeout,
    )
    with Console(options) as console:
        for era in ERAS[1:] if options.era == "both" else [options.era]:
            options.era = era
            async with client_for(options, **{**console.client_options(), "on_log": None, "limits": limits}) as client:
                method, send = await _prepare(client, options)
                measurement = await _measure(client, send, options, console)
                info = client.server_info
                head = {
                    "server": None if info is None else {"name": info.name, "version": info.version},
                    "tool": options.name,
                    "concurrency": options.concurrency,
                }
                runs.append({"protocolVersion": client.protocol_version, "method": method, **measurement})
            if not runs[-1]["complete"]:
                break
        console.clear()
        if options.json:
            write(sys.stdout, f"{as_json({**head, 'runs': runs})}\n")
        else:
            write(sys.stdout, "".join(f"{escape_line(line)}\n" for line in _lines(head, runs)))
        if any(each["client"]["cores"] > _BUSY for each in runs):
            console.note("The client used a whole core: the server may answer more calls than it could make.")
    return 0 if all(each["calls"] and not each["failed"] for each in runs) else 1


async def _prepare(client: Client, options: argparse.Namespace) -> tuple[str, Send]:
    """Return the method and what makes one call: of the tool, or a ping without one. Raises StartError."""
    limits = time_limits(options)
    if options.name is None:
        method = "server/discover" if method_in("ping", client.protocol_version) is None else "ping"

        async def ping() -> None:
            await client.request(method, cache="bypass", **limits)

        return method, ping
    tools = {tool.name: tool for tool in await client.list_tools()}
    if options.name not in tools:
        raise StartError(f"Unknown tool: {options.name}; {suggest_tool(options.name, list(tools))}")
    arguments = parse_arguments(options.arguments, tools[options.name].input_schema)

    async def call() -> str | None:
        result = await client.call_tool(options.name, arguments, raise_on_error=False, **limits)
        return content_to_text(result) if result.is_error else None

    return "tools/call", call


# ---------------------------------------------------------------- calls


async def _measure(client: Client, send: Send, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Warm up, then measure until the end of the run or Ctrl-C."""
    pid = options.pid or getattr(getattr(client.session and client.session.channel, "process", None), "pid", None)
    limit = options.calls or math.inf
    seconds = options.seconds if options.seconds is not None else math.inf if options.calls else _SECONDS
    measurement = Measurement(pid)
    with until_interrupted():
        if options.warm_up:
            await _call_concurrently(send, options.concurrency, itertools.count(), options.warm_up, measurement)
        measurement = Measurement(pid)
        numbers = iter(range(options.calls)) if options.calls else itertools.count()
        drawing = asyncio.create_task(_draw(console, measurement, limit, seconds))
        try:
            await _call_concurrently(send, options.concurrency, numbers, seconds, measurement)
            measurement.is_complete = True
        finally:
            drawing.cancel()
    return measurement.describe()


async def _call_concurrently(
    send: Send, concurrency: int, numbers: Iterator[int], seconds: float, measurement: Measurement
) -> None:
    """Make calls until the numbers or the time are used up; those under way then are waited for."""

    async def caller() -> None:
        for _ in numbers:
            start = time.perf_counter()
            try:
                failure = await send()
            except GemelError as exc:
                failure = str(exc) or type(exc).__name__
            end = time.perf_counter()
            if failure is None:
                measurement.latencies.add(end - start)
            else:
                measurement.fail(failure)
                await asyncio.sleep(0)  # a call that fails at once has not given way to others
            if end >= until:
                return

    until = time.perf_counter() + seconds
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(caller())


async def _draw(console: Console, measurement: Measurement, limit: float, seconds: float) -> None:
    while console.draws_bar:
        await asyncio.sleep(_UPDATE)
        calls, passed = measurement.calls, measurement.seconds
        failed = f", {measurement.failed:,} failed" if measurement.failed else ""
        if calls:
            done = max(calls / limit, passed / seconds if seconds else 1.0)
            console.draw(min(done, 1.0), 1.0, f"{calls:,} calls, {calls / passed:,.0f}/s{failed}")


# ---------------------------------------------------------------- text


def _lines(head: dict[str, Any], runs: list[dict[str, Any]]) -> Iterable[str]:
    """Yield a table with a column for each run."""
    server, callers = head["server"], head["concurrency"]
    what = f"{runs[0]['method']} {head['tool']}" if head["tool"] else "/".join(dict.fromkeys(r["method"] for r in runs))
    name = Implementation(**server).name_and_version if server else "unnamed server"
    yield f"{name}: {what}, {callers} concurrent caller{'s' if callers > 1 else ''}"
    yield ""
    rows = [(label, [form(each) for each in runs]) for label, form in _rows().items()]
    rows = [(label, cells) for label, cells in rows if any(cells)]
    width = max(len(cell) for _, cells in rows for cell in cells)
    for label, cells in rows:
        yield "  ".join([f"{label:26}", *(f"{cell or '-':>{width}}" for cell in cells)])
    for each in runs:
        if each["errors"]:
            yield from ("", f"failed calls in protocol {each['protocolVersion']}:")
            yield from (f"{error['count']:8,}  {error['message']}" for error in each["errors"])


def _rows() -> dict[str, Callable[[dict[str, Any]], str]]:
    def latency(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda each: f"{each['latency'][name]:,.3f}" if each["latency"] else ""

    def cost(side: str, name: str, form: str, unit: int = 1) -> Callable[[dict[str, Any]], str]:
        return lambda each: form.format(each[side][name] / unit) if each[side] and each[side][name] is not None else ""

    return {
        "protocol": lambda each: str(each["protocolVersion"]),
        "calls": lambda each: f"{each['calls']:,}",
        "failed": lambda each: f"{each['failed']:,}",
        "seconds": lambda each: f"{each['seconds']:,.2f}",
        "calls per second": lambda each: f"{each['callsPerSecond']:,.0f}",
        **{f"latency {name}, ms": latency(name) for name in ("min", "p50", "p90", "p99", "p99.9", "max")},
        "server CPU per call, µs": cost("server", "cpuPerCall", "{:,.1f}"),
        "server CPU, cores": cost("server", "cores", "{:.2f}"),
        "server peak memory, MiB": cost("server", "peakMemory", "{:,.1f}", 1 << 20),
        "client CPU per call, µs": cost("client", "cpuPerCall", "{:,.1f}"),
        "client CPU, cores": cost("client", "cores", "{:.2f}"),
    }
