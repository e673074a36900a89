"""The floor of telling streams of a change: a protocol on uvloop that keeps them, and writes the same event to each, once."""

import asyncio
from typing import Any

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
streams: list[Any] = []


def chunk(method: str) -> bytes:
    """An event of about the size that others send."""
    meta = '"_meta":{"io.modelcontextprotocol/subscriptionId":1234}'
    event = b'data: {"jsonrpc":"2.0","method":"notifications/%b","params":{%b}}\n\n' % (method.encode(), meta.encode())
    return b"%x\r\n%b\r\n" % (len(event), event)


ACKNOWLEDGED, CHANGED = chunk("subscriptions/acknowledged"), chunk("tools/list_changed")


class Connection(asyncio.Protocol):
    """One connection: a stream, or calls of the tool that says that something has changed."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if b"subscriptions/listen" in data:
            streams.append(self._transport)
            self._transport.write(HEAD + ACKNOWLEDGED)
            return
        for stream in streams:
            stream.write(CHANGED)
        self._transport.write(DONE)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


uvloop.run(serve())
