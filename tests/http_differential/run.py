"""Raw requests to several HTTP servers, and to proxies in front of ours: `python -m tests.http_differential.run --help`.

No two readers may see different requests in the same bytes: that is request smuggling (RFC 9112, 11.2). Our server must refuse
what the specification demands, and whatever it accepts it must read as the others do that accept it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.http_differential.app import SERVERS
from tests.http_differential.requests import LAST, Bytes, cases
from tests.ports import free_port
from tools.ci import LEFT_OUT

#: Seconds without a byte after which a response counts as complete.
SILENCE = 0.3
PACKAGES = {"uvicorn-h11": "h11", "uvicorn-httptools": "httptools", "granian": "granian"}
PROXIES = {
    "nginx": """
daemon off; pid {directory}/pid; error_log /dev/null; events {{}}
http {{
  access_log off; client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory};
  upstream app {{ server 127.0.0.1:{app}; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering off; }}
  }}
}}
""",
    "haproxy": """
defaults
  mode http
  timeout connect 2s
  timeout client 2s
  timeout server 2s
  option http-keep-alive
frontend front
  bind 127.0.0.1:{port}
  default_backend app
backend app
  http-reuse always
  server app 127.0.0.1:{app}
""",
}
COMMANDS = {"nginx": ["nginx", "-c", "{file}"], "haproxy": ["haproxy", "-f", "{file}"]}


class Seen(NamedTuple):
    """What a server made of one connection: the statuses of its responses, and the requests that the app got."""

    statuses: tuple[int, ...]
    requests: tuple[str, ...]

    @property
    def refused(self) -> bool:
        """Whether the case was refused: the first response is an error, or there is none."""
        return not self.statuses or self.statuses[0] >= 400


@contextlib.asynccontextmanager
async def running(command: Sequence[str], port: int) -> AsyncIterator[None]:
    """Run a program until it has been used; it listens on the port."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.05)
        else:
            raise RuntimeError(f"{command[0]} does not listen")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


async def ask(port: int, case: Bytes) -> Seen:
    """Send a case, then the last request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = b""
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(case.data + LAST)
        while piece := await asyncio.wait_for(reader.read(65536), SILENCE if data else 3 * SILENCE):
            data += piece
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return read(data)


def read(data: bytes) -> Seen:
    """Return what the bytes of the responses say."""
    statuses: list[int] = []
    requests: list[str] = []
    while data.startswith(b"HTTP/1."):
        head, _, rest = data.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        lines = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
        length = int(lines.get(b"content-length", b"0"))
        if status >= 200:
            statuses.append(status)
        if b"chunked" in lines.get(b"transfer-encoding", b""):
            size = int(rest.partition(b"\r\n")[0] or b"0", 16)
            body = rest.partition(b"\r\n")[2][:size]
            data = rest.partition(b"0\r\n\r\n")[2]
        else:
            body, data = rest[:length], rest[length:]
        with contextlib.suppress(ValueError):
            request = json.loads(body)
            if isinstance(request, dict) and "method" in request:
                requests.append(f"{request['method']} {request['path']} {request['body']!r}")
            continue
        if status == 200 and length:  # HEAD has a length and no body
            data = rest
    return Seen(tuple(statuses), tuple(requests))


def judge(case: Bytes, seen: dict[str, Seen]) -> str | None:
    """Describe what our server does wrong, compared with the specification and the other servers; None if nothing."""
    own = seen["gemel"]
    if any("smuggled" in request for request in own.requests) and not _agrees_on_smuggled(own, seen):
        return "a request was found in a body"
    if case.strict and not own.refused:
        return f"it was accepted: {own}"
    if own.refused:
        return None
    for name, other in seen.items():
        same = [_plain(request) for request in other.requests[:1]] == [_plain(request) for request in own.requests[:1]]
        if name != "gemel" and not other.refused and not same:
            return f"{name} read it differently: {own.requests[:1]} and {other.requests[:1]}"
    return None


def _plain(request: str) -> str:
    """Return a request without host and fragment, which some servers leave in the path."""
    return re.sub(r"http://a|#\w*", "", request)


def _agrees_on_smuggled(own: Seen, seen: dict[str, Seen]) -> bool:
    """Whether every other server that accepts the case sees the same requests."""
    others = [other for name, other in seen.items() if name != "gemel" and not other.refused]
    return bool(others) and all(other.requests == own.requests for other in others)


async def compare(chosen: Sequence[Bytes], servers: Sequence[str], *, verbose: bool) -> list[str]:
    """Send the cases to servers, and return what is wrong."""
    ports: dict[str, int] = {}
    async with contextlib.AsyncExitStack() as stack:
        for server in servers:
            package = PACKAGES.get(server)
            if package is not None and importlib.util.find_spec(package) is None:
                print(f"{LEFT_OUT}the HTTP server {server}: {package} is not installed")
                continue
            port = ports[server] = free_port()
            command = [sys.executable, "-m", "tests.http_differential.app", server, str(port)]
            await stack.enter_async_context(running(command, port))
        wrong = []
        for case in chosen:
            answers = await asyncio.gather(*(ask(port, case) for port in ports.values()))
            seen = dict(zip(ports, answers, strict=True))
            problem = judge(case, seen)
            if problem is not None:
                wrong.append(f"{case.name}: {problem}")
            if verbose:
                shown = ", ".join(f"{name} {seen[name].statuses}" for name in seen)
                print(f"{'ok' if problem is None else 'WRONG':6} {case.name}: {shown}")
    print(f"{len(chosen)} cases on {', '.join(ports)}: {len(wrong)} wrong")
    return wrong


async def compare_behind(proxy: str, chosen: Sequence[Bytes]) -> list[str]:
    """Send the cases through a proxy, and return what is wrong."""
    if shutil.which(proxy) is None:
        print(f"{LEFT_OUT}requests through {proxy}: it is not installed")
        return []
    wrong = []
    app_port, port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "configuration")
        await asyncio.to_thread(file.write_text, PROXIES[proxy].format(directory=directory, app=app_port, port=port))
        command = [sys.executable, "-m", "tests.http_differential.app", "gemel", str(app_port)]
        front = [word.format(file=file) for word in COMMANDS[proxy]]
        async with running(command, app_port), running(front, port):
            for case in chosen:
                await ask(port, case)
                # If the two saw different requests, the next user of the connection between them gets a foreign answer.
                after = await ask(port, Bytes("after", b"GET /after HTTP/1.1\r\nHost: a\r\n\r\n"))
                if after.requests[:1] != ("GET /after ''",):
                    wrong.append(f"{case.name}: behind {proxy}, the next request got the answer to {after}")
    print(f"{len(chosen)} cases behind {proxy}: {len(wrong)} wrong")
    return wrong


async def run_all(
    chosen: Sequence[Bytes], servers: Sequence[str], proxies: Sequence[str], *, verbose: bool
) -> list[str]:
    """Run everything; return what is wrong."""
    wrong = await compare(chosen, servers, verbose=verbose)
    for proxy in proxies:
        wrong += await compare_behind(proxy, chosen)
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.http_differential.run", description="Compare HTTP servers.")
    parser.add_argument("--only", default="", help="cases whose names contain this text")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every case with its statuses")
    options = parser.parse_args(arguments)
    chosen = [case for case in cases() if options.only in case.name]
    wrong = asyncio.run(run_all(chosen, SERVERS, list(PROXIES), verbose=options.verbose))
    for line in wrong:
        print(f"WRONG  {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
