"""The messages of one connection as events of the journal, each with the call that it belongs to."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.channel import ChannelKind
from gemel.dev.journal import EventJournal
from gemel.errors import CallError, HeaderMismatch
from gemel.http1.client.wire import HeaderPairs, Wire, WireResponse
from gemel.jsonrpc import RequestId
from gemel.protocol.eras.base import EraName
from gemel.protocol.http.mirror import decode_value
from gemel.schema.base import SUBSCRIPTION_ID
from gemel.testing.wire_log import SeenMessage, Side, other_side
from gemel.transports.stream.line_channel import one_line

#: Bytes of a message that its event contains; a larger one has its own address.
MAX_INLINE = 16 * 1024
#: Characters of the preview of a larger one.
PREVIEW = 500
#: Requests of which a response is awaited.
_MAX_OPEN = 10_000
#: Channels whose kinds are remembered.
_MAX_CHANNELS = 1000

_SECRET_HEADERS = ("authorization", "cookie", "key", "password", "secret", "token")


class Sent:
    """What messages are sent for: the task that sends them sets `SENT`.

    Args:
        call: The id of the call; None for what no call needs, such as lists.
        keep: Whether to keep the responses.
    """

    def __init__(self, call: str | None = None, *, keep: bool = False) -> None:
        self.call = call
        self.rounds = 0
        self.responses: list[bytes] = []
        #: The number of the last response, and its size.
        self.response = 0
        self.size = 0
        #: The number of the event of the last request.
        self.request = 0
        self._keep = keep

    def answered(self, n: int, data: bytes) -> None:
        """A response has come."""
        self.response, self.size = n, len(data)
        if self._keep:
            self.responses.append(data)


#: What the messages of a task are sent for.
SENT: ContextVar[Sent | None] = ContextVar("gemel_dev_sent", default=None)
#: The message that a task sends over HTTP, until its request is made.
_LEAVING: ContextVar[SeenMessage | None] = ContextVar("gemel_dev_leaving", default=None)


class _Head(msgspec.Struct):
    """The members of a message that are needed here."""

    id: Any = UNSET
    method: Any = UNSET
    params: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _OpenRequest(NamedTuple):
    """A request that is not answered yet: what it is sent for, its method and its time in seconds."""

    sent: Sent | None
    method: str
    at: float


_head = msgspec.json.Decoder(_Head)


class MessageJournal:
    """A `MessageObserver` that writes the messages of one era to the journal.

    Args:
        journal: The journal.
        era: The era.
        on_closed: Called with the reason when the other side has closed a channel.
    """

    def __init__(self, journal: EventJournal, era: EraName, on_closed: Callable[[str], None]) -> None:
        self._journal = journal
        self._era = era
        self._on_closed = on_closed
        self._channels = 0
        self._spans = 0
        #: The kinds of the channels, by number.
        self.kinds: dict[int, ChannelKind] = {}
        #: Whether messages of the client are written when their HTTP request is made.
        self.over_http = False
        #: Requests without a response yet, by their sender.
        self._requests: dict[Side, dict[tuple[int, RequestId], _OpenRequest]] = {"client": {}, "server": {}}

    # ---------------------------------------------------------------- MessageObserver

    def on_open(self, kind: ChannelKind) -> int:
        """See MessageObserver."""
        self._channels += 1
        self.kinds[self._channels] = kind
        if len(self.kinds) > _MAX_CHANNELS:
            del self.kinds[self._channels - _MAX_CHANNELS]
        for requests in self._requests.values():
            requests.clear()
        return self._channels

    def on_message(self, message: SeenMessage) -> None:
        """See MessageObserver."""
        if self.over_http and message.sender == "client":
            _LEAVING.set(message)
        else:
            self._add(message, None)

    def on_failure(self, channel: int, request_id: RequestId | None, error: CallError) -> None:
        """See MessageObserver. The call that failed tells it."""
        if request_id is not None:
            self._requests["client"].pop((channel, request_id), None)

    def on_close(self, channel: int, by: Side, reason: str) -> None:
        """See MessageObserver."""
        if by == "server" and channel == self._channels:
            self._on_closed(reason)

    # ---------------------------------------------------------------- HTTP

    def on_request(self, method: str, headers: HeaderPairs, body: bytes | None) -> None:
        """An HTTP request is made: write its message, with its headers."""
        message = _LEAVING.get()
        if method == "POST" and message is not None and message.data == body:
            self._add(message, headers)

    # ---------------------------------------------------------------- events

    @property
    def kind(self) -> str:
        """The kind of the latest channel; "" if there was none."""
        return self.kinds.get(self._channels, "")

    def call_of(self, request_id: RequestId) -> Sent | None:
        """Return what a request of the server belongs to."""
        request = self._requests["server"].get((self._channels, request_id))
        return request.sent if request is not None else None

    def _add(self, message: SeenMessage, headers: HeaderPairs | None) -> None:
        data = message.data
        fields: dict[str, Any] = {"era": self._era, "channel": message.channel, "sender": message.sender}
        fields["size"] = len(data)
        if headers is not None:
            fields |= _shown_headers(headers)
        if message.about is not None:
            fields["about"] = message.about
        try:
            text = data.decode()
            head = _head.decode(data) if data.lstrip()[:1] == b"{" else None
            if head is None or len(data) <= MAX_INLINE:
                msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            fields["preview"] = data[: 4 * PREVIEW].decode("utf-8", "replace")[:PREVIEW]
            self._journal.add("bytes", fields, message=data)
            return
        sent = answered = None
        if head is not None:
            fields |= {name: value for name in ("id", "method") if (value := getattr(head, name)) is not UNSET}
            answered = self._answered(message, head)
            sent = self._owner(message, head) if answered is None else answered.sent
        if answered is not None:
            fields["answers"] = answered.method
        if sent is not None and sent.call is not None:
            fields |= {"call": sent.call, "round": sent.rounds}
        if len(data) <= MAX_INLINE:
            n = self._journal.add("message", {**fields, "data": Raw(one_line(data))})
        else:
            n = self._journal.add("message", {**fields, "preview": text[:PREVIEW]}, message=data)
        if sent is None or head is None or head.id is UNSET:
            return
        if answered is not None:
            self._add_span(message, head, answered)
        if message.sender == "server" and head.method is UNSET:
            sent.answered(n, data)
        elif message.sender == "client" and head.method is not UNSET:
            sent.request = n

    def _add_span(self, message: SeenMessage, head: _Head, request: _OpenRequest) -> None:
        """Show a request of a call as a span, now that it is answered."""
        if request.sent is None or request.sent.call is None:
            return
        self._spans += 1
        fields = {
            "trace": request.sent.call,
            "span": f"{self._era}-{self._spans}",
            "parent": request.sent.call,
            "side": "client",
            "name": request.method if message.sender == "client" else f"round {request.sent.rounds}",
            "start": round(request.at * 1000, 3),
            "ms": round((time.time() - request.at) * 1000, 3),
            "status": "error" if head.error is not UNSET else "ok",
            "attributes": {"mcp.method.name": request.method, "jsonrpc.request.id": str(head.id)},
        }
        self._journal.add("span", fields)

    def _answered(self, message: SeenMessage, head: _Head) -> _OpenRequest | None:
        """Return the request that a message answers, and forget it."""
        if head.method is not UNSET or not isinstance(head.id, str | int):
            return None
        return self._requests[other_side(message.sender)].pop((message.channel, head.id), None)

    def _owner(self, message: SeenMessage, head: _Head) -> Sent | None:
        """Return what a message that answers nothing belongs to."""
        if head.method is UNSET:
            return None
        is_request = isinstance(head.id, str | int)
        if message.sender == "server":
            sent = self._about(message, head)
        elif is_request:
            sent = SENT.get()
            if sent is not None:
                sent.rounds += 1
        else:
            return self._request_of(message.channel, _member(head.params, "requestId"))
        requests = self._requests[message.sender]
        if is_request and len(requests) < _MAX_OPEN:
            requests[message.channel, head.id] = _OpenRequest(sent, str(head.method)[:PREVIEW], time.time())
        return sent

    def _about(self, message: SeenMessage, head: _Head) -> Sent | None:
        """Return the call that a message of the server belongs to: one that it names, or whose stream it came on.

        Where nothing tells, it is the latest call for a request, and the only one for a log message.
        """
        names = [message.about]
        if head.method == "notifications/progress":
            names.append(_member(head.params, "progressToken"))
        elif head.method == "notifications/cancelled":
            return None
        names.append(_member(_member(head.params, "_meta"), SUBSCRIPTION_ID))
        for name in names:
            if (sent := self._request_of(message.channel, name)) is not None:
                return sent
        if self.over_http and (sent := SENT.get()) is not None and sent.call is not None:
            return sent  # it came on the stream of the request
        if head.id is UNSET and head.method != "notifications/message":
            return None
        open_here = [request.sent for request in self._requests["client"].values()]
        calls = [sent for sent in open_here if sent is not None and sent.call is not None]
        return calls[-1] if calls and (head.id is not UNSET or len(calls) == 1) else None

    def _request_of(self, channel: int, request_id: object) -> Sent | None:
        request = self._requests["client"].get((channel, request_id)) if isinstance(request_id, str | int) else None
        return request.sent if request is not None else None


def _member(value: object, name: str) -> Any:
    if isinstance(value, Raw):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return None
    return value.get(name) if isinstance(value, dict) else None


def _shown_headers(headers: HeaderPairs) -> dict[str, Any]:
    """The headers of a request without secrets, and what encoded ones mean."""
    shown: dict[str, str] = {}
    decoded: dict[str, str] = {}
    for name, value in headers:
        secret = is_secret(name)
        shown[name] = "…" if secret else value
        if value.startswith("=?base64?") and not secret:
            try:
                decoded[name] = decode_value(value)
            except HeaderMismatch:
                continue
    return {"headers": shown, **({"decoded": decoded} if decoded else {})}


def is_secret(header: str) -> bool:
    """Return whether the value of a header is not to be shown, by its name."""
    return any(word in header.lower() for word in _SECRET_HEADERS)


class ObservedWire:
    """An HTTP client whose requests a journal sees.

    Args:
        wire: The HTTP client.
        messages: The journal of the messages.
    """

    def __init__(self, wire: Wire, messages: MessageJournal) -> None:
        self._wire = wire
        self._messages = messages

    @property
    def http_version(self) -> str | None:
        """The version of HTTP that the wire speaks, if it tells."""
        return getattr(self._wire, "http_version", None)

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> WireResponse:
        """See Wire.open."""
        self._messages.on_request(method, headers, body)
        return await self._wire.open(method, url, headers, body)

    async def close(self) -> None:
        """See Wire.close."""
        await self._wire.close()
