"""Instructions per call, counted by valgrind: `python -m benchmarks.instructions [http] [http_token] [memory] [--calls 1000]`.

With `--of gemel` for one contestant only, which for those of this project needs nothing that must be installed first.

The figure that no other work on the machine changes: what is executed in user mode, the HTTP server included, without
the kernel. It says nothing of how long an instruction takes. Needs valgrind and some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.cases import Contestant, all_cases, spawn
from benchmarks.installing import peer_python
from benchmarks.traffic import CLIENTS, Call, calls
from benchmarks.wire import check_http

CONNECTIONS = 32
#: Calls that are made before counting: until then things are made that stay.
WARM = 320
VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
COUNT = re.compile(r"I\s+refs:\s+([\d,]+)")
_LENGTH = re.compile(rb"content-length: (\d+)")


def main() -> None:
    """Count what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument(
        "case", nargs="*", default=["http", "memory"], help="http, http_token, memory; default: http memory"
    )
    parser.add_argument("--calls", type=int, default=1000, help="calls that are counted")
    parser.add_argument("--of", action="append", help="only this contestant, such as gemel; may be given several times")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is missing: it is a package of that name")
    drive = {"http": over_http, "http_token": over_http, "memory": in_memory}
    needs_peers = options.of is None or any(name.startswith("mcp") for name in options.of)
    peers = peer_python("peers") if needs_peers else Path(sys.executable)
    for case in all_cases(peers, Path(sys.executable), with_gemel=True):
        if case.key in options.case and case.key in drive:
            print(f"**{case.title}**\n\n|  | instructions/call |\n| --- | ---: |")
            for contestant in case.contestants:
                if options.of is not None and contestant.name not in options.of:
                    continue
                count = counted(contestant, drive[case.key], options.calls)
                print(f"| {contestant.name} | {count:,.0f} |", flush=True)
            print()


def counted(contestant: Contestant, drive: Callable[[subprocess.Popen[bytes], int], None], calls: int) -> float:
    """The difference of two runs of different length, per call."""
    few, many = (_run(contestant, drive, number) for number in (WARM, WARM + calls))
    return (many - few) / calls


def _run(contestant: Contestant, drive: Callable[[subprocess.Popen[bytes], int], None], calls: int) -> int:
    with tempfile.NamedTemporaryFile("r") as log:
        process = spawn(contestant, subprocess.PIPE, [*VALGRIND, f"--log-file={log.name}"])
        drive(process, calls)
        process.wait(60)
        found = COUNT.search(log.read())
    if found is None:
        raise SystemExit(f"{contestant.name}: valgrind counted nothing")
    return int(found[1].replace(",", ""))


def over_http(process: subprocess.Popen[bytes], count: int) -> None:
    """So many calls over kept connections, then SIGTERM."""
    assert process.stdout is not None
    port, *tokens = process.stdout.readline().decode().split()
    share, more = divmod(count, CONNECTIONS)
    clients = list(CLIENTS) * (CONNECTIONS // len(CLIENTS))
    sent = [
        calls(client, share + (number < more), int(port), seed=number, tokens=tokens)
        for number, client in enumerate(clients)
    ]
    asyncio.run(_all_connections(int(port), sent))
    process.send_signal(signal.SIGTERM)


async def _all_connections(port: int, sent: list[list[Call]]) -> None:
    await asyncio.gather(*(_connection(port, each) for each in sent))


async def _connection(port: int, sent: list[Call]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for each in sent:
        writer.write(each.request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head.lower())
        body = await reader.readexactly(int(length[1])) if length else await _chunks(reader)
        check_http(head, body, each.number)
    writer.close()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def in_memory(process: subprocess.Popen[bytes], count: int) -> None:
    """So many calls, then the end of the input."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    process.stdin.write(f"{count} calls\n".encode())
    process.stdin.flush()
    process.stdout.readline()
    process.stdin.close()


if __name__ == "__main__":
    main()
