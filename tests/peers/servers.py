"""Plays the server of a row over a transport."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from gemel.testing import ScriptedPeer
from tests.peers.rows import END, PLAIN, STATELESS, Http, Over, Row

#: The results of a plain server, by era.
RESULTS: dict[str, dict[str, Any]] = {
    "2025": {method: PLAIN[method] for method in PLAIN if method != "server/discover"},
    "2026": {method: {**PLAIN[method], **STATELESS[method]} for method in STATELESS},
}

Json = dict[str, Any]


class Played:
    """The answers of one server: what the row says for the first message of a method, else the plain ones."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._left = dict(row.sends)

    def chosen(self, method: str) -> Any:
        """What the row says for a message of a method, or for a GET or DELETE; None if it says nothing."""
        return self._left.get(method) if self.row.always else self._left.pop(method, None)

    def answers(self, message: Json) -> list[str | bytes] | Http:
        """What is sent because of one message."""
        method = message.get("method", "")
        chosen, results = self.chosen(method), RESULTS["2026" if self.row.era == "2026" else "2025"]
        written = _Written(message, results.get(method, {}))
        if isinstance(chosen, Http):
            return chosen._replace(body=written(chosen.body))
        if chosen is not None:
            return [text if text == END else written(text) for text in chosen]
        if "id" not in message or "method" not in message:
            return []
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        if method in results:
            answer["result"] = results[method]
        elif method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        return [json.dumps(answer)]


class _Written:
    """Puts what a message has, and its plain result, into a text or bytes."""

    def __init__(self, message: Json, result: Json) -> None:
        token = message.get("params", {}).get("_meta", {}).get("progressToken")
        values = {"@ID@": message.get("id"), "@TOKEN@": token, "@RESULT@": result}
        self._values = {name: json.dumps(value) for name, value in values.items()}

    def __call__(self, text: Any) -> Any:
        for name, value in self._values.items():
            is_text = isinstance(text, str)
            text = text.replace(name, value) if is_text else text.replace(name.encode(), value.encode())
        return text


@contextlib.asynccontextmanager
async def served(row: Row, over: Over) -> AsyncIterator[Any]:
    """Yield a target for clients."""
    played = Played(row)
    if over != "stdio":
        async with await asyncio.start_server(_Connection(played, over), "127.0.0.1", 0) as listener:
            yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
        return

    async def script(peer: ScriptedPeer) -> None:
        with contextlib.suppress(AssertionError):
            while True:
                answers = played.answers(await peer.expect())
                assert not isinstance(answers, Http)
                for text in answers:
                    if text == END:
                        return await peer.close()
                    await peer.send(text if isinstance(text, bytes) else text.encode() + b"\n")

    async with ScriptedPeer(script, over="stdio") as peer:
        yield peer


class _Connection:
    def __init__(self, played: Played, over: Over) -> None:
        self._played = played
        self._over = over

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            is_open = True
            while is_open:
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in lines if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer = self._answer(json.loads(body)) if first.startswith("post") else self._other(first)
                if answer.status:
                    writer.write(_response(answer))
                    await writer.drain()
                is_open = bool(answer.status) and answer.frame != "close"
        writer.close()

    def _other(self, first: str) -> Http:
        chosen = self._played.chosen(first.partition(" ")[0].upper())
        return chosen if isinstance(chosen, Http) else Http(405)

    def _answer(self, message: Json) -> Http:
        answers = self._played.answers(message)
        if isinstance(answers, Http):
            return answers
        if self._over == "sse" and ("id" in message or answers):
            return Http(200, "".join(f"data: {text!s}\n\n" for text in answers), "text/event-stream")
        return Http(200, str(answers[0])) if answers else Http(202)


def _response(answer: Http) -> bytes:
    body = answer.body.encode(answer.encoding)
    lines = [f"HTTP/1.1 {answer.status} X"]
    if body and answer.kind:
        lines.append(f"Content-Type: {answer.kind}")
    if answer.frame == "chunks":
        lines.append("Transfer-Encoding: chunked")
        body = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    elif answer.frame == "length":
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    return (answer.before + answer.line_end.join([*lines, "", ""])).encode("latin-1") + body
