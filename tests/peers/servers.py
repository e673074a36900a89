"""Plays the server of a row over a transport."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from gemel.testing import ScriptedPeer
from tests.peers.rows import PLAIN, Http, Over, Row

Json = dict[str, Any]


class Played:
    """The answers of one server: what the row says for the first message of a method, else the plain ones."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._left = dict(row.sends)

    def answers(self, message: Json) -> list[str] | Http:
        """What is sent because of one message."""
        method = message.get("method", "")
        chosen = self._left.get(method)
        if not self.row.always:
            self._left.pop(method, None)
        if isinstance(chosen, Http):
            return chosen._replace(body=_written(chosen.body, message))
        if chosen is not None:
            return [_written(text, message) for text in chosen]
        if "id" not in message or "method" not in message:
            return []
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        if method in PLAIN:
            answer["result"] = PLAIN[method]
        elif method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        return [json.dumps(answer)]


def _written(text: str, message: Json) -> str:
    token = message.get("params", {}).get("_meta", {}).get("progressToken")
    result = json.dumps(PLAIN.get(message.get("method", ""), {}))
    values = {"@ID@": json.dumps(message.get("id")), "@TOKEN@": json.dumps(token), "@RESULT@": result}
    for name, value in values.items():
        text = text.replace(name, value)
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
                    await peer.send(text.encode() + b"\n")

    async with ScriptedPeer(script, over="stdio") as peer:
        yield peer


class _Connection:
    def __init__(self, played: Played, over: Over) -> None:
        self._played = played
        self._over = over

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in lines if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer = self._answer(json.loads(body)) if first.startswith("post") else Http(405)
                writer.write(_response(answer))
                await writer.drain()
        writer.close()

    def _answer(self, message: Json) -> Http:
        answers = self._played.answers(message)
        if isinstance(answers, Http):
            return answers
        if not answers:
            return Http(202)
        if self._over == "sse":
            return Http(200, "".join(f"data: {text}\n\n" for text in answers), "text/event-stream")
        return Http(200, answers[0])


def _response(answer: Http) -> bytes:
    body = answer.body.encode()
    lines = [f"HTTP/1.1 {answer.status} X", f"Content-Length: {len(body)}"]
    if body and answer.kind:
        lines.append(f"Content-Type: {answer.kind}")
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
