"""What is measured: each case starts a contestant and takes one sample of it, as often as it is asked to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from benchmarks.clocks import cpu_seconds
from benchmarks.installing import CACHE, ROOT
from benchmarks.stores import opened_store, redis_program
from benchmarks.wire import VARIANTS, call, check

PROGRAMS = Path(__file__).resolve().parent / "programs"
#: The Go SDK takes part if somebody has built it; docs/performance.md says how.
GO_SERVER = CACHE / "go-server"
#: A program that says nothing for so long is broken.
PATIENCE = 30.0


@dataclass(frozen=True)
class Contestant:
    """Somebody who runs: which interpreter, which program, with which arguments."""

    name: str
    python: Path
    program: str
    arguments: tuple[str, ...] = ()
    #: Further processes whose CPU time is its own.
    pids: tuple[int, ...] = ()
    #: Whether the load takes event streams only.
    events: bool = False
    #: Whether each client sends the same call again and again.
    repeated: bool = False

    @property
    def command(self) -> list[str]:
        return [str(self.python), str(PROGRAMS / self.program), *self.arguments]


@dataclass(frozen=True)
class Sample:
    """One measurement: calls made, wall seconds, CPU seconds of the measured process, and what else is of interest."""

    calls: int
    seconds: float
    cpu: float
    extra: dict[str, float]


class Running(Protocol):
    """A contestant at work in one case."""

    def sample(self, seconds: float) -> Sample:
        """Measure for about so long."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...


def spawn(contestant: Contestant, stdin: int | None = None, under: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start its program, with this checkout's packages in reach and nothing else of our environment changed.

    `under` is a command that runs it.
    """
    environment = dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}", PYTHONHASHSEED="0")
    command = [*under, *contestant.command]
    return subprocess.Popen(command, env=environment, cwd=PROGRAMS, stdin=stdin, stdout=subprocess.PIPE)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a program that we started; it has two seconds to do it by itself."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


def _say(stream: IO[bytes] | None, data: bytes) -> None:
    assert stream is not None
    stream.write(data)
    stream.flush()


def _hear(contestant: Contestant, process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{contestant.name}: {contestant.program} ended with {process.wait()} before it answered")
    return line


class HttpServer:
    """A server over HTTP with one worker; the load comes from a process of its own, which is told its options.

    The program prints its port, and access tokens if it needs them.
    """

    def __init__(self, contestant: Contestant, *options: str, load: str = "load_http") -> None:
        self.contestant = contestant
        flags = (("--events", contestant.events), ("--repeated", contestant.repeated))
        self.load = [f"benchmarks.{load}", *options, *(name for name, given in flags if given)]
        self.process = spawn(contestant)
        port, *tokens = _hear(contestant, self.process).decode().split()
        self.load += ["--port", port, *(f"--token={token}" for token in tokens)]

    def sample(self, seconds: float) -> Sample:
        command = [sys.executable, "-m", *self.load, "--seconds", str(seconds)]
        for pid in (self.process.pid, *children(self.process.pid), *self.contestant.pids):
            command += ["--pid", str(pid)]
        limit = seconds + PATIENCE
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=limit)
        if done.returncode:
            raise SystemExit(f"{self.contestant.name}: the HTTP load failed\n{done.stderr}")
        figures = json.loads(done.stdout)
        return Sample(
            figures["calls"],
            figures["seconds"],
            figures["cpu"],
            {
                "p50": figures["p50"],
                "p99": figures["p99"],
                "driver_cpu_per_call": figures["driver_cpu"] / figures["calls"],
                "busy": figures["cpu"] / figures["seconds"],
            },
        )

    def close(self) -> None:
        end(self.process)


class WithStore:
    """A contestant with a store of its own: the URL of the kind that its first argument names replaces that."""

    def __init__(self, start: Callable[[Contestant], Running], contestant: Contestant) -> None:
        self.stack = ExitStack()
        try:
            store = self.stack.enter_context(opened_store(contestant.arguments[0]))
            arguments = (store.url, *contestant.arguments[1:])
            self.running = start(replace(contestant, arguments=arguments, pids=store.pids))
        except BaseException:
            self.stack.close()
            raise

    def sample(self, seconds: float) -> Sample:
        return self.running.sample(seconds)

    def close(self) -> None:
        self.running.close()
        self.stack.close()


class WithServers:
    """A contestant that reaches other servers, whose URLs are added to its arguments; their CPU time is not its own."""

    def __init__(
        self, start: Callable[[Contestant], Running], servers: Sequence[Contestant], contestant: Contestant
    ) -> None:
        self.stack = ExitStack()
        try:
            urls = []
            for server in servers:
                process = spawn(server)
                self.stack.callback(end, process)
                urls.append(f"http://127.0.0.1:{_hear(server, process).decode().strip()}/mcp")
            self.running = start(replace(contestant, arguments=(*contestant.arguments, *urls)))
        except BaseException:
            self.stack.close()
            raise

    def sample(self, seconds: float) -> Sample:
        return self.running.sample(seconds)

    def close(self) -> None:
        self.running.close()
        self.stack.close()


class FanOut:
    """Changes that streams of `subscriptions/listen` in several processes are told of; a call is one notification.

    A process of its own listens.
    """

    def __init__(self, contestant: Contestant, listeners: int = 1000, processes: int = 4) -> None:
        self.contestant = contestant
        shares = 1 if contestant.arguments[0].startswith("memory") else processes
        self.processes = [spawn(contestant) for _ in range(shares)]
        self.ports = [_hear(contestant, process).decode().strip() for process in self.processes]
        self.listening = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.listen_http", "--listeners", str(listeners), "--port", *self.ports],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        _hear(contestant, self.listening)

    def sample(self, seconds: float) -> Sample:
        pids = [*(process.pid for process in self.processes), *self.contestant.pids]
        cpu = cpu_seconds(pids)
        _say(self.listening.stdin, f"{seconds}\n".encode())
        figures = json.loads(_hear(self.contestant, self.listening))
        return Sample(figures["told"], figures["seconds"], cpu_seconds(pids) - cpu, {"p50": figures["p50"]})

    def close(self) -> None:
        for process in (self.listening, *self.processes):
            end(process)


class StdioServer:
    """stdio `tools/call`, with so many calls under way at once."""

    def __init__(self, contestant: Contestant, depth: int) -> None:
        self.contestant = contestant
        self.depth = depth
        self.lines = [call(number) + b"\n" for number in range(VARIANTS)]
        self.process = spawn(contestant, subprocess.PIPE)
        self.sample(0.2)

    def sample(self, seconds: float) -> Sample:
        """Keep `depth` calls in flight; every answer is looked at, one in 101 in full."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        write, read = stdin.fileno(), stdout.fileno()
        sent, answered, rest = 0, 0, b""
        cpu, begin = cpu_seconds((self.process.pid,)), time.perf_counter()
        until = begin + seconds
        room = self.depth
        while room or answered < sent:
            if room:
                os.write(write, b"".join(self.lines[(sent + n) % VARIANTS] for n in range(room)))
                sent += room
            got = os.read(read, 1 << 16)
            if not got:
                raise SystemExit(f"{self.contestant.name}: the stdio server ended under load")
            *lines, rest = (rest + got).split(b"\n")
            for line in lines:
                if answered % 101 == 0 or b'"result"' not in line or b"structuredContent" not in line:
                    check(line, int(json.loads(line)["id"]))
                answered += 1
            room = len(lines) if time.perf_counter() < until else 0
        taken = time.perf_counter() - begin
        return Sample(answered, taken, cpu_seconds((self.process.pid,)) - cpu, {})

    def close(self) -> None:
        end(self.process)


class InMemory:
    """Client and server in one process, which runs on command."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.process = spawn(contestant, subprocess.PIPE)
        _hear(contestant, self.process)

    def sample(self, seconds: float) -> Sample:
        _say(self.process.stdin, f"{seconds}\n".encode())
        figures = json.loads(_hear(self.contestant, self.process))
        return Sample(figures["calls"], figures["seconds"], figures["cpu"], {})

    def close(self) -> None:
        end(self.process)


class ColdStart:
    """From `exec` of a stdio server to its first answer; then its input ends. A sample is one start."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant

    def sample(self, seconds: float) -> Sample:
        begin = time.perf_counter()
        process = spawn(self.contestant, subprocess.PIPE)
        _say(process.stdin, call(1) + b"\n")
        answer = _hear(self.contestant, process)
        first = time.perf_counter() - begin
        check(answer, 1)
        cpu = cpu_seconds((process.pid,))
        peak = _peak_memory(process.pid)
        end(process)
        return Sample(1, first, cpu, {"peak_mb": peak, "to_end": time.perf_counter() - begin})

    def close(self) -> None:
        """Nothing stays."""


def _peak_memory(pid: int) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


class Import:
    """What an import costs in CPU time, over an interpreter that imports nothing. The program is the statement."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant

    def sample(self, seconds: float) -> Sample:
        bare = self._run("pass")
        full = self._run(self.contestant.program)
        return Sample(1, full[0], max(full[1] - bare[1], 0.0), {"peak_mb": full[2]})

    def _run(self, statement: str) -> tuple[float, float, float]:
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "src"))
        with tempfile.TemporaryFile() as nothing:
            begin = time.perf_counter()
            process = subprocess.Popen(
                [str(self.contestant.python), "-c", statement], env=environment, cwd=PROGRAMS, stdin=nothing
            )
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{self.contestant.name}: {statement!r} failed")
        return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024

    def close(self) -> None:
        """Nothing stays."""


@dataclass(frozen=True)
class Case:
    """One line of work: how to start a contestant, who takes part, for how long one sample goes."""

    key: str
    title: str
    start: Callable[[Contestant], Running]
    contestants: tuple[Contestant, ...]
    #: What is compared: CPU per call, or the wall time.
    compared: str = "cpu"
    #: A sample is one start of a process: measure it more often than the rest.
    one_shot: bool = False
    #: Whether the calls per second are compared with the bare floor, too.
    rated: bool = False


def all_cases(peers: Path, ours: Path, with_gemel: bool, fastmcp: Path | None = None) -> list[Case]:
    """The cases in the order of the table; the floor and the official SDK always, Gemel when it can run.

    With FastMCP there are also those of work that users would recognise.
    """

    def entrants(kind: str, mcp: tuple[tuple[str, str], ...]) -> tuple[Contestant, ...]:
        rows = [Contestant("bare", ours, f"bare_{kind}.py")]
        rows += [Contestant(name, peers, "mcp_server.py", (mode,)) for name, mode in mcp]
        if with_gemel:
            rows.append(Contestant("gemel", ours, "gemel_server.py", (kind,)))
        return tuple(rows)

    stdio = entrants("stdio", (("mcp", "stdio"),))
    memory = [Contestant("bare", ours, "bare_memory.py"), Contestant("mcp", peers, "mcp_memory.py")]
    imports = [Contestant("mcp", peers, "import mcp"), Contestant("mcp client", peers, "from mcp import Client")]
    if with_gemel:
        memory.append(Contestant("gemel", ours, "gemel_memory.py"))
        imports += [
            Contestant("gemel", ours, "from gemel import Server, Context"),
            Contestant("gemel client", ours, "from gemel import Client"),
        ]

    over_http = tuple(
        Contestant(name, ours, "gemel_client.py", (path,))
        for name, path in (("bare", "post"), ("gemel", "client"))
        if with_gemel
    )
    in_threads = tuple(replace(each, arguments=("add_in_thread",)) for each in memory)

    def stores(program: str, *arguments: str) -> tuple[Contestant, ...]:
        names = {"gemel": "memory", "gemel sqlite": "sqlite"} | ({"gemel redis": "redis"} if redis_program() else {})
        return tuple(Contestant(name, ours, program, (kind, *arguments)) for name, kind in names.items() if with_gemel)

    in_32_sessions = _http("--sessions", "32")
    over_sessions = partial(WithStore, in_32_sessions)
    fan_out, tasks = partial(WithStore, FanOut), partial(WithStore, InMemory)
    http = (Contestant("raw", ours, "raw_http.py"), *entrants("http", (("mcp", "http"), ("mcp json", "http-json"))))
    if GO_SERVER.exists():
        http += tuple(Contestant(name, GO_SERVER, "go", mode) for name, mode in (("go", ()), ("go json", ("json",))))
    if with_gemel:
        http += (Contestant("gemel asgi", ours, "gemel_server.py", ("asgi",)),)
    tokens: tuple[Contestant, ...] = (Contestant("gemel", ours, "gemel_server.py", ("http",)),) if with_gemel else ()
    tokens += tuple(Contestant("gemel token", each.python, each.program, ("http-token",)) for each in tokens)
    texts = (Contestant("raw", ours, "raw_http.py", ("text",)), *tokens[:1])
    in_sessions = (
        Contestant("mcp", peers, "mcp_server.py", ("http",)),
        Contestant("mcp json", peers, "mcp_server.py", ("http-json",)),
        *tokens[:1],
        *(replace(each, name="gemel events", events=True) for each in tokens[:1]),
    )
    if fastmcp is not None:
        further = Contestant("fastmcp", fastmcp, "fastmcp_rows.py", ("http",))
        http += (further,)
        in_sessions += (further, replace(further, name="fastmcp json", arguments=("http-json",)))
    again = {"gemel"} if fastmcp is None else {"gemel", "mcp", "fastmcp", "bare", "raw"}
    http += tuple(replace(each, name=f"{each.name} repeated", repeated=True) for each in http if each.name in again)
    workers = tuple(
        Contestant(name, ours, "gemel_server.py", ("workers", count))
        for name, count in (("gemel", "1"), ("gemel, two workers", "2"))
        if with_gemel
    )
    return [
        Case("http", "HTTP 2026-07-28 tools/call, 32 connections, one worker", HttpServer, http),
        Case(
            "http_token", "HTTP, the same with the access tokens of 32 callers, which are checked", HttpServer, tokens
        ),
        Case("stdio_pipelined", "stdio server, 16 calls in flight", lambda c: StdioServer(c, 16), stdio),
        Case("stdio_pingpong", "stdio server, one call at a time", lambda c: StdioServer(c, 1), stdio, rated=True),
        Case("memory", "in memory, client and server together", InMemory, tuple(memory)),
        Case("client", "our client over HTTP, without sockets", InMemory, over_http),
        Case("sync", "in memory, a sync tool in a thread", InMemory, in_threads),
        Case(
            "http_text",
            "HTTP 2026-07-28, a result of 1 MB of text, 4 connections",
            _http("--connections", "4", "--tool", "text"),
            texts,
        ),
        Case(
            "http_session",
            "HTTP 2025-11-25 tools/call in 32 sessions, beside other libraries",
            in_32_sessions,
            in_sessions,
        ),
        Case(
            "session",
            "HTTP 2025-11-25 tools/call in 32 sessions, 32 connections",
            over_sessions,
            stores("gemel_shared.py"),
        ),
        Case("workers", "HTTP, a tool that computes for half a millisecond", HttpServer, workers),
        Case(
            "fan_out",
            "a change told to 1,000 streams, over a store in four processes",
            fan_out,
            (Contestant("bare", ours, "bare_listen.py", ("memory",)), *stores("gemel_shared.py")),
        ),
        Case("tasks", "a task without steps, client and server together", tasks, stores("gemel_tasks.py", "task")),
        Case("steps", "a step of a task, of 50 in each", tasks, stores("gemel_tasks.py", "step")),
        Case("cold_start", "stdio server, start to first answer", ColdStart, stdio, compared="wall", one_shot=True),
        Case("import", "import, CPU over an empty interpreter", Import, tuple(imports), one_shot=True),
        *(_rows(peers, ours, fastmcp) if fastmcp is not None and with_gemel else ()),
    ]


def _http(*options: str, load: str = "load_http") -> Callable[[Contestant], Running]:
    """Start a server over HTTP whose load has these options."""
    return lambda contestant: HttpServer(contestant, *options, load=load)


def _rows(peers: Path, ours: Path, fastmcp: Path) -> list[Case]:
    """Work that users would recognise, by Gemel, the official SDK and FastMCP, each as its documentation shows."""

    def all_as(mode: str) -> tuple[Contestant, ...]:
        pythons = {"gemel": ours, "mcp": peers, "fastmcp": fastmcp}
        return tuple(Contestant(name, python, f"{name}_rows.py", (mode,)) for name, python in pythons.items())

    def between(mode: str) -> tuple[Contestant, ...]:
        """The official SDK has nothing that stands between."""
        return tuple(each for each in all_as(mode) if each.name != "mcp")

    behind = (Contestant("behind", ours, "gemel_server.py", ("http",)),) * 5
    foreign = (Contestant("foreign", peers, "mcp_server.py", ("http-json",)),)
    visit = partial(_http, load="load_visits")
    return [
        Case("model", "HTTP, a pydantic model in and out", _http("--tool", "order"), all_as("http")),
        Case("report", "HTTP, a result of 100 KB of text", _http("--tool", "report"), all_as("http")),
        Case("progress", "HTTP, 20 notifications of progress and a result", _http("--tool", "steps"), all_as("http")),
        Case("jwt", "HTTP, a call with a JSON Web Token, of 32 callers", HttpServer, all_as("token")),
        Case(
            "list",
            "a new session lists 50 tools and ends",
            visit("--era", "2025", "--tools", "50", "--calls", "0"),
            all_as("many"),
        ),
        Case("visits", "100 clients connect, list, call and leave", visit("--connections", "100"), all_as("http")),
        Case(
            "foreign",
            "a client over HTTP to a foreign server",
            partial(WithServers, InMemory, foreign),
            all_as("client"),
        ),
        Case(
            "proxy",
            "a proxy before an HTTP server, 4 connections",
            partial(WithServers, _http("--connections", "4"), behind[:1]),
            between("proxy"),
        ),
        Case(
            "gateway",
            "a gateway to five HTTP servers, 4 connections",
            partial(WithServers, _http("--connections", "4", "--prefix", "s3_"), behind),
            between("gateway"),
        ),
    ]
