"""The floor of any HTTP server in Python: a protocol on uvloop and httptools; for each call a task, the decoded call, one write.

With `text` its tool returns a text of a megabyte.
"""

import asyncio
import sys
from typing import Any

import httptools
import uvloop

from benchmarks.programs.bare_wire import answer, answer_text

respond = answer_text if sys.argv[1:] == ["text"] else answer


class Connection(asyncio.Protocol):
    """One connection, whose requests come one after the other."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        self._task = asyncio.create_task(self._answer(body))

    async def _answer(self, body: bytes) -> None:
        content = await respond(body)
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(content), content)
        )


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


uvloop.run(serve())
