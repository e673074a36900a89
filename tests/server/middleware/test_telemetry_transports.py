"""OpenTelemetry's conventions for MCP on every transport: what both sides record of the same calls, in both eras.

https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from gemel import Client, Context, Limits, PeerError, ResourceNotFound, Server, ToolCallError
from tests.observed import Observed, attributes, observing
from tests.serving import Way, connected, running
from tests.support import V2025_11, V2026_07
from tests.transports.http_rig import JSON_HEADERS, initialize, serving
from tests.transports.loops import until

ROOT = Path(__file__).resolve().parents[3]
HTTP = {"network.transport": "tcp", "network.protocol.name": "http", "network.protocol.version": "1.1"}
#: What the network attributes are, by transport; where the server is differs by run.
TRANSPORTS: dict[str, dict[str, str]] = {
    "memory": {},
    "unix": {"network.transport": "unix"},
    "tcp": {"network.transport": "tcp"},
    "stdio": {"network.transport": "pipe"},
    "http": HTTP,
    "httpx2": HTTP,
    "sse": HTTP,
}
CASES = [
    (transport, era) for transport in TRANSPORTS for era in ("2025", "2026") if (transport, era) != ("sse", "2026")
]

#: A program that serves `make_server` on stdio and writes each span that ends to a file, as JSON on one line.
PROGRAM = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from tests.server.middleware.test_telemetry_transports import make_server

class ToFile(SpanExporter):
    def export(self, spans):
        with open(sys.argv[1], "a") as file:
            for span in spans:
                of = {"kind": span.kind.name, "name": span.name, "status": span.status.status_code.name}
                print(json.dumps({**of, "attributes": dict(span.attributes)}), file=file)
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
make_server().run()
"""


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    yield from observing(monkeypatch)


def make_server() -> Server[Any]:
    server: Server[Any] = Server("traced")

    @server.tool
    async def fine() -> str:
        return "fine"

    @server.tool
    async def crashes() -> str:
        raise RuntimeError("boom")

    @server.tool
    async def refused() -> str:
        raise ResourceNotFound("data://none")

    @server.tool
    async def asks(ctx: Context[Any]) -> str:
        return await ctx.elicit("Who?", str)

    @server.prompt
    async def brief(topic: str) -> str:
        return topic

    @brief.complete("topic")
    async def topics(value: str) -> list[str]:
        return ["one"]

    @server.resource("data://one")
    async def one() -> str:
        return "one"

    return server


@asynccontextmanager
async def connected_by(transport: Any, era: Any, directory: Path) -> AsyncIterator[Client]:
    options: dict[str, Any] = {"era": era, "on_elicit": lambda form: {"value": "Ada"}}
    if transport == "stdio":
        (directory / "program.py").write_text(PROGRAM)
        command = [sys.executable, str(directory / "program.py"), str(directory / "spans")]
        async with Client(command, env={"PYTHONPATH": str(ROOT)}, **options) as client:
            yield client
    else:
        way: Way = "http" if transport == "httpx2" else transport
        wire: dict[str, Any] = {"wire": "httpx2"} if transport == "httpx2" else {}
        async with connected(make_server(), way, **wire, **options) as client:
            yield client


async def recorded(
    transport: str, era: Any, directory: Path, observed: Observed
) -> dict[tuple[str, str], dict[str, Any]]:
    """The attributes of all spans of one run, by kind and name, with the status as `status`."""
    async with connected_by(transport, era, directory) as client:
        await client.call_tool("fine")
        await client.call_tool("asks")
        with pytest.raises(ToolCallError):
            await client.call_tool("crashes")
        with pytest.raises(PeerError):
            await client.call_tool("refused")
        await client.get_prompt("brief", {"topic": "rain"})
        await client.complete(prompt="brief", argument="topic", value="o")
        await client.read_resource("data://one")
    spans: dict[tuple[str, str], dict[str, Any]] = {}
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        for name in observed.names(kind):
            span = observed.spans(kind, name)[-1]
            spans[kind.name, name] = {**attributes(span), "status": span.status.status_code.name}
    if transport == "stdio":
        for line in (directory / "spans").read_text().splitlines():
            span_of = json.loads(line)
            spans[span_of["kind"], span_of["name"]] = {**span_of["attributes"], "status": span_of["status"]}
    return spans


@pytest.mark.parametrize(("transport", "era"), CASES)
async def test_both_sides_record_what_the_conventions_have(
    observed: Observed, transport: str, era: Any, tmp_path: Path
) -> None:
    spans = await recorded(transport, era, tmp_path, observed)
    version = V2026_07 if era == "2026" else V2025_11
    opening = "server/discover" if era == "2026" else "initialize"
    refusal = "-32602" if era == "2026" else "-32002"  # as the peer gets it
    expected: dict[str, dict[str, Any]] = {
        opening: {},
        "tools/call fine": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "fine"},
        "tools/call asks": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "asks"},
        "tools/call crashes": {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "crashes",
            "error.type": "tool_error",
            "status": "ERROR",
        },
        "tools/call refused": {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "refused",
            "error.type": refusal,
            "rpc.response.status_code": refusal,
            "status": "ERROR",
        },
        "prompts/get brief": {"gen_ai.prompt.name": "brief"},
        "completion/complete brief": {"gen_ai.prompt.name": "brief"},
        "resources/read": {"mcp.resource.uri": "data://one"},
    }
    if era == "2025":
        expected["elicitation/create"] = {}
    session_ids = set()
    for name, more in expected.items():
        ids = set()
        for kind in ("CLIENT", "SERVER"):
            found = spans[kind, name]
            ids.add(found.pop("jsonrpc.request.id"))
            session_ids.add(found.pop("mcp.session.id", None))
            sent_by_server = name == "elicitation/create"
            if kind == "CLIENT" and TRANSPORTS[transport].get("network.transport") in ("tcp", "unix"):
                assert sent_by_server or found["server.address"]
            if kind == "SERVER" and TRANSPORTS[transport].get("network.transport") == "tcp":
                assert sent_by_server or (found["client.address"], type(found["client.port"])) == ("127.0.0.1", int)
            for own in ("server.address", "server.port", "client.address", "client.port", "mcp.client.version"):
                found.pop(own, None)
            assert found.pop("mcp.client.name", "gemel") == "gemel"
            assert found == {
                "mcp.method.name": name.split()[0],
                "mcp.protocol.version": version,
                **TRANSPORTS[transport],
                "status": "UNSET",
                **more,
            }, (kind, name)
        assert len(ids) == 1, name
    # One session, and both sides name it in every span; the first of the two revisions of this run has sessions over HTTP.
    assert (None in session_ids, len(session_ids)) == (transport not in ("http", "httpx2") or era == "2026", 1)


@pytest.mark.parametrize("transport", ["unix", "tcp", "http", "sse"])
async def test_a_session_is_measured_with_what_its_calls_told(
    observed: Observed, transport: str, tmp_path: Path
) -> None:
    async with connected_by(transport, "2025", tmp_path) as client:
        await client.call_tool("fine")
    await until(lambda: observed.points("mcp.server.session.duration"))
    for side in ("client", "server"):
        (point,) = observed.points(f"mcp.{side}.session.duration")
        found = attributes(point)
        for own in ("server.address", "server.port"):
            found.pop(own, None)
        assert found == {"mcp.protocol.version": V2025_11, **TRANSPORTS[transport]}


@pytest.mark.parametrize("end", ["reset", "stalled"])
async def test_a_session_that_breaks_has_an_error_type(observed: Observed, end: str) -> None:
    """On the server: the connection is reset, or the client does not read."""
    server: Server[Any] = Server("breaks", limits=Limits(stream_wait=0.05, stream_bytes=1024))

    @server.tool
    async def long() -> str:
        return "x" * 8_000_000

    async with running(server, "socket", port=0) as address:
        plain = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "long", "arguments": {}}}
        client = {"protocolVersion": V2026_07, "clientCapabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        meta = {f"io.modelcontextprotocol/{name}": value for name, value in client.items()}
        call["params"]["_meta"] = meta  # type: ignore[index]  # the table's values are objects
        if end == "stalled":
            plain.sendall(json.dumps(call).encode() + b"\n")
        else:
            await until(lambda: observed.points("gemel.server.active_sessions"))
            plain.close()  # at once, with a reset
        await until(lambda: observed.points("mcp.server.session.duration"))
        plain.close()
    (point,) = observed.points("mcp.server.session.duration")
    assert attributes(point)["error.type"] == {"reset": "ConnectionResetError", "stalled": "TimeoutError"}[end]


@pytest.mark.parametrize(
    ("end", "error"),
    [("deleted", None), ("stopped", None), ("idle", "TimeoutError"), ("unused", "TimeoutError"), ("refused", "-32602")],
)
async def test_an_http_session_that_its_client_leaves_behind_has_an_error_type(
    observed: Observed, end: str, error: str | None
) -> None:
    """A session that its client deletes ends regularly, and so does one that the stopping server ends."""
    limits = Limits(session_idle=0.1 if end == "idle" else 60, sessions=1)
    points: list[Any] = []
    async with serving(Server("left", limits=limits)) as site:
        if end == "refused":
            hello = initialize()
            del hello["params"]["protocolVersion"]
            assert "error" in (await site.ask(JSON_HEADERS, hello)).json()
        elif end == "unused":
            await site.ask(JSON_HEADERS, initialize())
            assert (await site.ask(JSON_HEADERS, initialize())).status == 200  # takes the place of the first
        else:
            session = await site.session()
            if end == "deleted":
                await site.ask(session, b"", "DELETE")
        if end != "stopped":
            await until(lambda: observed.points("mcp.server.session.duration"))
            points = observed.points("mcp.server.session.duration")
    if end == "stopped":
        points = observed.points("mcp.server.session.duration")
    (point,) = points
    assert attributes(point).get("error.type") == error


# ---------------------------------------------------------------- without telemetry


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize(
    ("transport", "era"), [("memory", "2025"), ("memory", "2026"), ("tcp", "2025"), ("http", "2025"), ("http", "2026")]
)
def test_a_call_without_a_provider_runs_nothing_of_telemetry(transport: str, era: str, imported: bool) -> None:
    """Nothing is imported that records, and no function or line of it runs: even if a library has imported the API."""
    code = f"""
        import asyncio, sys
        from pathlib import Path
        {"import opentelemetry.trace, opentelemetry.metrics" if imported else ""}
        import gemel
        from tests.transports.http_rig import JSON_HEADERS, initialize, serving
        from gemel.transports.stream.sockets import SocketServer

        server = gemel.Server("x")

        @server.tool
        async def fine() -> str:
            return "fine"

        async def calls(target):
            async with gemel.Client(target, era={era!r}) as client:
                await client.call_tool("fine")
                ran = []
                def profile(frame, event, argument):
                    ran.append(frame.f_code.co_filename)
                sys.setprofile(profile)
                await client.call_tool("fine")
                sys.setprofile(None)
                return ran

        async def main():
            if {transport!r} == "memory":
                return await calls(server)
            if {transport!r} == "http":
                async with serving(server) as site:
                    return await calls(f"http://127.0.0.1:{{site.port}}/mcp")
            async with server.running():
                listening = SocketServer(server.serve, port=0)
                await listening.start()
                ran = await calls(f"tcp://127.0.0.1:{{listening.address[1]}}")
                await listening.stop()
                return ran

        before = {{name for name in sys.modules if name.startswith("opentelemetry")}}
        ran = asyncio.run(main())
        here = str(Path(gemel.__file__).parent)
        mine = {{file.removeprefix(here) for file in ran if file.startswith(here)}}
        assert len(mine) > 5, mine
        print({{file for file in mine if "telemetry" in file or "spans" in file}})
        mine = [name for name in sys.modules if name.startswith("gemel.") and ("telemetry" in name or "spans" in name)]
        print(mine, [name for name in sys.modules if name.startswith("opentelemetry") and name not in before])
    """
    lines = code.split("\n")
    program = "\n".join(line[8:] for line in lines)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    # The switch itself, `gemel.telemetry`, is asked when a server or a client starts.
    assert done.stdout.splitlines() == ["set()", "['gemel.telemetry'] []"]
