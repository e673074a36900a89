"""`gemel listen`: show changes, resource updates and log messages of a server as they come."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import datetime
from typing import Any

import msgspec

from gemel.cli.connect import client_for
from gemel.cli.console import Console, describe_server
from gemel.client.client import Client
from gemel.client.subscriptions import Subscription, announced_lists, change_of, listen_to
from gemel.client.terminal.display import is_terminal, write
from gemel.protocol.changes import Changed, ChangesLost, lists_of_filter
from gemel.schema.methods import LIST_CHANGED
from gemel.schema.notifications import LogParams
from gemel.visible import escape_line


async def run(options: argparse.Namespace) -> int:
    """Print a line for each message until Ctrl-C, or until the connection is lost for good."""
    lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1000)

    def log(params: LogParams) -> None:
        _add(lines, {"type": "log", **msgspec.to_builtins(params)})

    def other(method: str, params: dict[str, Any]) -> None:
        if change_of(method, params) is None:  # changes come from the subscription
            _add(lines, {"type": "notification", "method": method, "params": params})

    with Console(options) as console:
        callbacks = {
            **console.client_options(),
            "on_log": log,
            "on_notification": other,
            "log_level": options.log_level,
        }
        async with (
            client_for(options, **callbacks) as client,
            client.listen(resources=options.uris, **listen_to(LIST_CHANGED)) as changes,
        ):
            console.note(f"Listening to {escape_line(describe_server(client))}. Ctrl-C ends.")
            if missing := _missing(client, changes, options.uris):
                console.note(f"The server does not announce changes of {', '.join(missing)}.")
            reading = asyncio.create_task(_read(changes, lines))
            try:
                while (line := await _next(lines, reading)) is not None:
                    _print(line, as_json=options.json)
            finally:
                reading.cancel()
                await asyncio.wait([reading])
    return 0


def _add(lines: asyncio.Queue[dict[str, Any]], line: dict[str, Any]) -> None:
    """Add a line; if the reader of the output is so slow that the queue is full, it is left out."""
    if not lines.full():
        lines.put_nowait({"time": datetime.now().astimezone().isoformat(timespec="milliseconds"), **line})


async def _read(changes: Subscription, lines: asyncio.Queue[dict[str, Any]]) -> None:
    async for change in changes:
        match change:
            case Changed(kind, uri):
                _add(lines, {"type": "changed", "kind": kind} | ({} if uri is None else {"uri": uri}))
            case ChangesLost(reason):
                _add(lines, {"type": "lost", "reason": reason})


async def _next(lines: asyncio.Queue[dict[str, Any]], reading: asyncio.Task[None]) -> dict[str, Any] | None:
    """Return the next line; None at the end of the subscription. Raises why it failed."""
    line = asyncio.create_task(lines.get())
    try:
        await asyncio.wait([line, reading], return_when=asyncio.FIRST_COMPLETED)
        if line.done():
            return line.result()
    finally:
        line.cancel()
    reading.result()
    return None


def _missing(client: Client, changes: Subscription, uris: list[str]) -> list[str]:
    """Name what the server does not announce."""
    accepted = changes.honoured
    announced = {*announced_lists(client.server_capabilities)}.intersection(lists_of_filter(accepted))
    missing = [feature for feature in LIST_CHANGED if feature not in announced]
    watched = accepted.resource_subscriptions or ()
    return ["the list of resources" if feature == "resources" else feature for feature in missing] + [
        uri for uri in uris if uri not in watched
    ]


def _print(line: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        write(sys.stdout, f"{msgspec.json.encode(line).decode()}\n")
        return
    match line:
        case {"type": "changed", "kind": "resource", "uri": uri}:
            text = f"{uri} changed"
        case {"type": "changed", "kind": kind}:
            text = f"{' '.join(filter(None, (kind, line.get('uri'))))} changed"
        case {"type": "lost", "reason": reason}:
            text = f"changes may be lost: {reason}"
        case {"type": "log", "level": level, "data": data}:
            message = data if isinstance(data, str) else msgspec.json.encode(data).decode()
            logger = f" {line['logger']}" if line.get("logger") else ""
            text = f"{level}{logger}: {message}"
        case _:
            text = f"{line['method']} {msgspec.json.encode(line['params']).decode()}"
    text = f"{line['time'][11:19]} {text}"
    write(sys.stdout, f"{escape_line(text) if is_terminal(sys.stdout) else text}\n")
