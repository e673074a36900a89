"""Ways to a server under test: a command's standard streams, a TCP socket, a URL. They share no code with Gemel."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shlex
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from tests.hostile.cases import (
    HEADER_MISMATCH,
    PARSE_ERROR,
    REVISION_2025,
    REVISION_2026,
    SAME,
    Answer,
    Case,
    Era,
    Expect,
    Flow,
    Json,
    Raw,
    request,
)
from tests.hostile.flows import Reply

#: Seconds to wait for an answer.
PATIENCE = 10.0
#: Seconds for a server to start.
START = 60.0
#: Seconds to wait for the first answer on a connection: a process may be starting.
FIRST = 20.0
#: Seconds to wait for the answer to a message on lines, once a later one was answered.
SILENCE = 3.0
INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {
        "protocolVersion": REVISION_2025,
        "capabilities": {"elicitation": {"form": {}}, "roots": {}},
        "clientInfo": {"name": "hostile", "version": "1"},
    },
}
INITIALIZED: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ALIVE: dict[Era, str] = {"2025": "ping", "2026": "server/discover"}


#: How a problem begins if no answer came.
NO_ANSWER = "no answer"
ProblemKind: TypeAlias = Literal["other", "silent", "hung", "lost", "ended"]


def key_of(identity: Any) -> str:
    """Return an id as text that tells 1 from "1"."""
    return json.dumps(identity)


def judge(expect: Expect, answers: list[Json]) -> str | None:
    """Describe what is wrong with the answers to one message; None if they are as expected."""
    if expect.kind == "silence":
        return f"an answer came: {shown(answers)}" if answers else None
    if expect.kind == "maybe" and not answers:
        return None
    if len(answers) != 1:
        return f"{len(answers)} answers came: {shown(answers)}" if answers else f"{NO_ANSWER} came"
    answer = answers[0]
    if ("result" in answer) == ("error" in answer) or answer.get("jsonrpc") != "2.0":
        return f"it is not a response: {shown(answer)}"
    problem = _judge_kind(expect, answer)
    return None if problem is None else f"{problem}: {shown(answer)}"


def _judge_kind(expect: Expect, answer: Json) -> str | None:
    if "error" in answer:
        error = answer["error"]
        code = error.get("code") if isinstance(error, dict) else None
        if type(code) is not int or not isinstance(error.get("message"), str):
            return "the error is malformed"
        if expect.kind in ("any", "maybe"):
            return None
        if expect.kind not in ("error", "refused", "either"):
            return "an error came"
        return None if code in expect.codes else f"the code is {code}, not {' or '.join(map(str, expect.codes))}"
    found = answer["result"]
    if not isinstance(found, dict):
        return "the result is not an object"
    if expect.kind == "error":
        return "a result came"
    is_error = found.get("isError") is True
    if expect.kind == "result" and is_error:
        return "a tool error came"
    if expect.kind in ("tool error", "refused") and not is_error:
        return "a result came that is not an error"
    return "the result is another one" if expect.check is not None and not expect.check(found) else None


def shown(value: Any) -> str:
    """Return a value as text for people, shortened."""
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


class Lost(Exception):
    """The connection was closed."""


class Problem(str):
    """What is wrong, with its kind: "other": another answer; "silent": none; "hung": none to a further request either;
    "lost": the connection was closed; "ended": the process of the server has ended.
    """

    kind: ProblemKind

    def __new__(cls, text: str, kind: ProblemKind) -> Problem:
        """Return a text with its kind."""
        problem = super().__new__(cls, text)
        problem.kind = kind
        return problem


HUNG = Problem("the server did not answer a further request", "hung")


def kind_of(problem: str) -> ProblemKind:
    """Return the kind of a problem."""
    if isinstance(problem, Problem):
        return problem.kind
    return "silent" if problem.startswith(NO_ANSWER) else "other"


async def rest(pid: int) -> None:
    """Wait until a process has been asleep for a while (Linux)."""
    asleep = 0
    for _ in range(int(START / 0.05)):
        await asyncio.sleep(0.05)
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2]  # noqa: ASYNC240 - no disk
            asleep = asleep + 1 if state.startswith("S") else 0
        if asleep == 8:
            return


class Lines:
    """Messages on lines. One connection serves many cases; it is opened again when a case ended it."""

    def __init__(self, command: str | None, address: tuple[str, int] | None = None, *, settle: bool = False) -> None:
        self._command = command
        #: Whether to wait until a process that was started rests, so that the time that it starts is not its silence.
        self._settle = settle
        self._address = address
        self._process: asyncio.subprocess.Process | None = None
        self._reader = asyncio.StreamReader()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self.answers: dict[str, list[Json]] = {}
        #: Requests of the server.
        self.requests: list[Json] = []
        self._arrived = asyncio.Event()
        self.ended = False
        self._count = 0

    async def open(self, era: Era | None) -> None:
        """Connect, and do the handshake of an era."""
        await self.close()
        self.answers, self.requests, self.ended = {}, [], False
        if self._command is not None:
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *shlex.split(self._command), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=2**26
            )
            assert self._process.stdout is not None
            self._reader, self._writer = self._process.stdout, self._process.stdin
        else:
            assert self._address is not None
            self._reader, self._writer = await asyncio.open_connection(*self._address, limit=2**26)
        self._reading = asyncio.create_task(self._read())
        if self._process is not None and self._settle:
            await rest(self._process.pid)
        if era == "2025":
            await self.send(json.dumps(INITIALIZE).encode())
            (answer,) = await self.wait_for("hello", START)
            if "error" in answer:
                raise Lost(f"the handshake was refused: {shown(answer)}")
            await self.send(json.dumps(INITIALIZED).encode())

    async def close(self) -> None:
        """End the connection, and the process."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 5)
        process, self._process = self._process, None
        if process is not None:
            try:
                await asyncio.wait_for(process.wait(), PATIENCE)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def send(self, text: bytes) -> None:
        """Send one line. Raises Lost."""
        if self._writer is None or self.ended:
            raise Lost("the connection is closed")
        try:
            self._writer.write(text + b"\n")
            await self._writer.drain()
        except OSError as exc:
            raise Lost(str(exc)) from exc

    def end_input(self) -> None:
        """Close the own direction of the connection."""
        assert self._writer is not None
        if self._writer.can_write_eof():
            self._writer.write_eof()
        else:
            self._writer.close()

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                self._take(line)
        except (OSError, ValueError):
            pass
        finally:
            self.ended = True
            self._arrived.set()

    def _take(self, line: bytes) -> None:
        try:
            content = json.loads(line)
        except ValueError:
            content = {"id": "not JSON", "line": line.decode("utf-8", "replace")[:200]}
        for message in content if isinstance(content, list) else [content]:
            if "method" in message and "id" in message:
                self.requests.append(message)
            elif "method" not in message:
                self.answers.setdefault(key_of(message.get("id")), []).append(message)
        self._arrived.set()

    async def wait_for(self, identity: Any, seconds: float = PATIENCE) -> list[Json]:
        """Wait for an answer to an id; return all of them. Raises Lost, TimeoutError."""
        key = key_of(identity)
        async with asyncio.timeout(seconds):
            while key not in self.answers:
                if self.ended:
                    raise Lost("the connection was closed")
                self._arrived.clear()
                await self._arrived.wait()
        return self.answers[key]

    async def wait_for_request(self) -> Json:
        """Wait for a request of the server. Raises Lost, TimeoutError."""
        async with asyncio.timeout(SILENCE):
            while not self.requests:
                if self.ended:
                    raise Lost("the connection was closed")
                self._arrived.clear()
                await self._arrived.wait()
        return self.requests.pop(0)

    async def wait_for_end(self, seconds: float = PATIENCE) -> None:
        """Wait until the other side closes the connection. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not self.ended:
                self._arrived.clear()
                await self._arrived.wait()

    async def lost(self, exc: Lost) -> Problem:
        """Return what became of the connection that was lost."""
        if self._process is None:
            return Problem(str(exc), "lost")
        with contextlib.suppress(TimeoutError):
            code = await asyncio.wait_for(self._process.wait(), 1)
            return Problem(f"the process ended with code {code}", "ended")
        return Problem(str(exc), "lost")

    async def check_alive(self, era: Era) -> None:
        """Require an answer to a further request. Raises Lost, TimeoutError."""
        self._count += 1
        identity = f"alive-{self._count}"
        await self.send(request(ALIVE[era], {}, era).replace(b"@ID@", identity.encode()))
        answers = await self.wait_for(identity)
        if len(answers) != 1:
            raise Lost(f"a request was answered {len(answers)} times")

    async def run(self, case: Case, era: Era) -> str | None:
        """Run one case in the open session; describe what is wrong."""
        self._count += 1
        identity = f"case-{self._count}"
        expected = key_of(identity if case.expect.id is SAME else case.expect.id)
        self.answers = {}
        try:
            await self.send(case.text.replace(b"@ID@", identity.encode()))
            await self.check_alive(era)
            if not self.answers.keys() & {expected, "null"} and case.expect.kind not in ("silence", "maybe"):
                await self.wait_for(identity if case.expect.id is SAME else case.expect.id, SILENCE)
        except Lost as exc:
            return await self.lost(exc)
        except TimeoutError:
            if any(key.startswith('"alive-') for key in self.answers):
                return f"{NO_ANSWER} came"
            return HUNG
        answers = {key: found for key, found in self.answers.items() if not key.startswith('"alive-')}
        if PARSE_ERROR in case.expect.codes and expected not in answers:
            expected = "null"  # what can't be parsed has no id
        others = {key: found for key, found in answers.items() if key != expected}
        if others:
            return f"an answer with another id came: {shown(others)}"
        return judge(case.expect, answers.get(expected, []))


async def run_flow(driver: Lines, flow: Flow) -> str | None:
    """Run a flow on a connection of its own; describe what is wrong."""
    await driver.open(None)
    try:
        for step in flow.steps:
            problem = await _run_step(driver, step)
            if problem is not None:
                return problem
        if flow.alive:
            await driver.check_alive("2026")
        for step in flow.steps:
            if isinstance(step, Answer) and step.expect.kind not in ("many", "first", "second"):
                problem = judge(step.expect, driver.answers.get(key_of(step.id), []))
                if problem is not None:
                    return Problem(f"the answer to {key_of(step.id)}: {problem}", kind_of(problem))
    except Lost as exc:
        return await driver.lost(exc)
    except TimeoutError:
        return HUNG
    return None


async def _run_step(driver: Lines, step: Any) -> str | None:
    if step is None:
        driver.end_input()
        await driver.wait_for_end()
    elif isinstance(step, bytes):
        await driver.send(step)
    elif isinstance(step, dict):
        await driver.send(json.dumps(step).encode())
    elif isinstance(step, Reply):
        try:
            asked = await driver.wait_for_request()
        except TimeoutError:
            return "the server did not send a request"
        for _ in range(step.times):
            await driver.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **step.members}).encode())
    elif isinstance(step, Answer) and step.expect.kind != "silence":
        try:
            await driver.wait_for(step.id, SILENCE if driver.answers else FIRST)
        except TimeoutError:
            return f"{NO_ANSWER} to {key_of(step.id)} came"
        if step.expect.kind == "first":
            return judge(Expect("result"), driver.answers.pop(key_of(step.id)))
        if step.expect.kind == "second":
            return judge(Expect("result"), driver.answers[key_of(step.id)])
    return None


# ---------------------------------------------------------------- HTTP


class Response(NamedTuple):
    """A response of HTTP. The status is 0 if the connection was closed without one."""

    status: int
    headers: Mapping[str, str]
    messages: list[Json]
    body: bytes


async def exchange(address: tuple[str, int], data: bytes, *, method: str = "POST", wait: bool = True) -> Response:
    """Send bytes on a new connection and read one response. Raises TimeoutError."""
    reader, writer = await asyncio.open_connection(*address, limit=2**26)
    try:
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
            return await read_reply(reader, method)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def read_reply(reader: asyncio.StreamReader, method: str = "POST") -> Response:
    """Read one response to its end; of an SSE stream up to the first response in it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 1"):
            head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, OSError):
        return Response(0, {}, [], b"")
    status_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(status_line.split(" ")[1])
    streams = headers.get("content-type", "").startswith("text/event-stream")
    body = b""
    if method != "HEAD" and status not in (204, 304):
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, ValueError):
            async for piece in _pieces(reader, headers):
                body += piece
                complete = streams and piece.endswith((b"\n\n", b"\r\n\r\n"))
                if complete and any("method" not in message for message in messages_in(body, streams=True)):
                    break
    return Response(status, headers, messages_in(body, streams=streams), body)


async def _pieces(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        yield await reader.read()


def messages_in(body: bytes, *, streams: bool) -> list[Json]:
    """Return the messages of a body."""
    texts = [body]
    if streams:
        texts = [
            b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
            for event in body.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]
        ]
    messages: list[Json] = []
    for text in texts:
        with contextlib.suppress(ValueError):
            content = json.loads(text)
            messages += [
                item for item in (content if isinstance(content, list) else [content]) if isinstance(item, dict)
            ]
    return messages


def header_value(text: str) -> str:
    """Return a value for a header that mirrors a member of a message."""
    plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?")
    return text if plain else f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
#: The HTTP status for an error of the stateless era; for other codes 400 or 200.
STATUS = {-32601: (404,), -32021: (400,), -32022: (400,), -32020: (400,)}


class Posts:
    """Messages as POSTs to an endpoint, with the headers of a correct client."""

    def __init__(self, url: str, *, lenient: bool = False) -> None:
        #: Whether errors may have no id, since the POST says what they answer.
        self._lenient = lenient
        parts = urlsplit(url)
        self.host = parts.netloc
        self.address = (parts.hostname or "", parts.port or 80)
        self.path = parts.path or "/"
        self._session: str | None = None
        self._count = 0

    def head(self, method: str, headers: Mapping[str, str | None], length: int | None) -> bytes:
        """Return the head of a request."""
        merged: dict[str, str | None] = {
            "Host": self.host,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Connection": "close",
            "Content-Length": None if length is None else str(length),
        }
        lower = {name.lower(): name for name in merged}
        for name, value in headers.items():
            merged[lower.get(name.lower(), name)] = value
        lines = [f"{name}: {value}" for name, value in merged.items() if value is not None]
        return "\r\n".join([f"{method} {self.path} HTTP/1.1", *lines, "", ""]).encode("latin-1")

    async def post(self, text: bytes, headers: Mapping[str, str | None]) -> Response:
        """Send a message. Raises OSError, TimeoutError."""
        return await exchange(self.address, self.head("POST", headers, len(text)) + text)

    async def session(self) -> dict[str, str | None]:
        """Return the headers of a session of the handshake era, which is opened if there is none."""
        if self._session is None:
            self._session = await self.new_session()
        return {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": REVISION_2025}

    async def new_session(self) -> str:
        """Open a session. Raises Lost."""
        reply = await self.post(json.dumps(INITIALIZE).encode(), {})
        if reply.status != 200:
            raise Lost(f"the handshake was refused: HTTP {reply.status} {reply.body[:200]!r}")
        session = reply.headers.get("mcp-session-id", "")
        await self.post(json.dumps(INITIALIZED).encode(), {"Mcp-Session-Id": session})
        return session

    async def end_session(self, session: Mapping[str, str | None]) -> None:
        """Delete a session by the headers of its requests. Raises Lost."""
        reply = await exchange(self.address, self.head("DELETE", session, 0), method="DELETE")
        if reply.status not in (200, 204):
            raise Lost(f"the end of a session was refused: HTTP {reply.status}")

    async def headers_for(self, text: bytes, era: Era) -> dict[str, str | None]:
        """Return the headers that a correct client would send with a message."""
        if era == "2025":
            return await self.session()
        headers: dict[str, str | None] = {"MCP-Protocol-Version": REVISION_2026}
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return headers
        method = message.get("method") if isinstance(message, dict) else None
        if isinstance(method, str):
            headers["Mcp-Method"] = method
            params = message.get("params")
            name = params.get(NAMED.get(method, "")) if isinstance(params, dict) else None
            if isinstance(name, str):
                headers["Mcp-Name"] = header_value(name)
        return headers

    async def check_alive(self) -> None:
        """Require an answer to a further request. Raises Lost, TimeoutError."""
        text = request("server/discover", {}, "2026")
        reply = await self.post(text, await self.headers_for(text, "2026"))
        if reply.status != 200:
            raise Lost(f"a further request was answered with HTTP {reply.status}")

    async def run(self, case: Case, era: Era) -> str | None:
        """Run one case; describe what is wrong."""
        self._count += 1
        identity = f"case-{self._count}"
        text = case.text.replace(b"@ID@", identity.encode())
        try:
            headers = await self.headers_for(text, era)
            reply = await self.post(text, headers)
            await self.check_alive()
        except TimeoutError:
            return f"{NO_ANSWER} came"
        except (Lost, OSError) as exc:
            return Problem(str(exc), "lost")
        answers = [message for message in reply.messages if "method" not in message]
        expect = case.expect
        if era == "2026" and expect.codes and not {"Mcp-Method", "Mcp-Name"} <= headers.keys():
            # What the message should have mirrored may be looked for first.
            expect = expect._replace(codes=(*expect.codes, HEADER_MISMATCH))
        problem = self._judge_status(expect, reply, era)
        if problem is not None:
            return Problem(f"{problem}: {reply.body[:300]!r}", kind_of(problem))
        expected = identity if expect.id is SAME else expect.id
        if expect.kind == "silence" and reply.status >= 400:
            answers = []  # the error of a refused POST
        for answer in answers:
            no_id = answer.get("id") is None and (PARSE_ERROR in expect.codes or (self._lenient and "error" in answer))
            if key_of(answer.get("id")) != key_of(expected) and not no_id:
                return f"the id is {answer.get('id')!r}: {shown(answer)}"
        return judge(expect, answers)

    async def run_raw(self, case: Raw) -> str | None:
        """Run a request as it is; describe what is wrong."""
        try:
            session = await self.session()
            identity = str(session["Mcp-Session-Id"])
            if isinstance(case.request, bytes):
                data = case.request.replace(b"@HOST@", self.host.encode()).replace(b"@PATH@", self.path.encode())
                method = data.partition(b" ")[0].decode("latin-1")
            else:
                method, headers, body = case.request
                given = {name: value and value.replace("@SESSION@", identity) for name, value in headers.items()}
                data = self.head(method, given, len(body)) + body
            response = await exchange(self.address, data, method=method)
            await self.check_alive()
        except TimeoutError:
            return f"{NO_ANSWER} came"
        except (Lost, OSError) as exc:
            return Problem(str(exc), "lost")
        if response.status == 0 and 0 not in case.status:
            return Problem("the connection was closed", "lost")
        if response.status not in case.status:
            return f"HTTP {response.status}, not {' or '.join(map(str, case.status))}: {response.body[:300]!r}"
        if case.codes:
            codes = [message["error"]["code"] for message in response.messages if "error" in message]
            if len(codes) != 1 or codes[0] not in case.codes:
                return f"the code is not {case.codes[0]}: {response.body[:300]!r}"
        return None

    def _judge_status(self, expect: Expect, reply: Response, era: Era) -> str | None:
        status, codes = reply.status, [message["error"].get("code") for message in reply.messages if "error" in message]
        if status == 0:
            return Problem("the connection was closed", "lost")
        if status >= 500:
            return f"HTTP {status}"
        if expect.kind == "silence":
            return None if status in (202, 400) else f"HTTP {status}"
        if expect.status and status not in expect.status:
            return f"HTTP {status}, not {expect.status}"
        if era == "2026" and codes and codes[0] in STATUS and status not in STATUS[codes[0]]:
            return f"HTTP {status} for code {codes[0]}"
        if expect.kind == "result" and status != 200:
            return f"HTTP {status}"
        return None
