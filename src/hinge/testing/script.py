"""What happened in a recording: each request of the client with all that belongs to it, in order. Pure.

What came from the server belongs to a request by its stream, its progress token or its subscription, else to the request
that was being served; what came while none was follows what the client had said last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from hinge.jsonrpc import RequestId
from hinge.schema.base import SUBSCRIPTION_ID
from hinge.testing.tape import Entry

LISTEN = "subscriptions/listen"

#: How a request ended: with an answer, called off by the client, with the channel by the server, by a failure of the
#: transport, or not before the recording did.
Ending: TypeAlias = Literal["answered", "cancelled", "cut", "failed", "open"]


class Say(msgspec.Struct, frozen=True):
    """The server says something that wants no answer. It comes after the client has said what `after` is the number of."""

    entry: Entry
    after: int = 0


class Question(msgspec.Struct, eq=False):
    """The server asks something; `answer` is the client's message, once it came."""

    entry: Entry
    answer: Entry | None = None


class Await(msgspec.Struct, frozen=True):
    """Before the server goes on, the client answers this."""

    question: Question


Step: TypeAlias = Say | Question | Await


class Exchange(msgspec.Struct, eq=False):
    """A request of the client, or a notification, and what belongs to it. `number` is its place among these."""

    number: int
    entry: Entry
    steps: list[Step] = []
    answer: Entry | None = None
    ending: Ending = "open"
    #: Said when it was over, and nothing else was being served.
    followers: list[Step] = []

    @property
    def method(self) -> str:
        """The method."""
        return str(self.entry.message["method"])

    @property
    def params(self) -> Mapping[str, Any]:
        """The params as they were said."""
        found = self.entry.message.get("params")
        return found if isinstance(found, Mapping) else {}

    @property
    def id(self) -> RequestId | None:
        """The id in the recording; None for a notification."""
        found: RequestId | None = self.entry.message.get("id")
        return found


class Script(msgspec.Struct, eq=False):
    """A whole recording: `exchanges` in the order in which the client began them."""

    entries: Sequence[Entry]
    exchanges: list[Exchange] = []
    #: Said by the server before the client said anything.
    opening: list[Step] = []
    #: By line: the exchange that begins or ends there, the question that is answered there.
    begins: dict[int, list[Exchange]] = {}
    ends: dict[int, list[Exchange]] = {}


class _Channel:
    """One channel while the recording is read."""

    def __init__(self) -> None:
        self.running: dict[RequestId, Exchange] = {}
        self.tokens: dict[Any, Exchange] = {}
        self.questions: dict[RequestId, tuple[Question, list[Step]]] = {}
        self.last: Exchange | None = None
        self.kind = ""


class _Reader:
    def __init__(self, entries: Sequence[Entry]) -> None:
        self.script = Script(entries)
        self._channels: dict[int, _Channel] = {}

    def read(self) -> Script:
        for entry in self.script.entries:
            channel = self._channels.setdefault(entry.channel, _Channel())
            if entry.kind == "message":
                self._message(channel, entry)
            elif entry.kind == "text" and entry.sender == "server":
                self._steps_for(channel, entry).append(Say(entry, self._said()))
            elif entry.kind == "failed":
                self._end(channel, entry.request_id, entry, "failed")
            elif entry.kind == "close":
                self._close(channel, entry)
            elif entry.kind == "open":
                channel.kind = entry.words
        return self.script

    def _said(self) -> int:
        """How many things the client has said so far."""
        return len(self.script.exchanges)

    def _message(self, channel: _Channel, entry: Entry) -> None:
        message = entry.message
        if "method" not in message:
            if entry.sender == "server":
                self._end(channel, message.get("id"), entry, "answered")
            else:
                self._answered(channel, message.get("id"), entry)
        elif entry.sender == "client":
            self._asked(channel, entry)
        elif "id" in message:
            question, steps = Question(entry), self._steps_for(channel, entry)
            steps.append(question)
            channel.questions[message["id"]] = question, steps
        else:
            self._steps_for(channel, entry).append(Say(entry, self._said()))

    def _asked(self, channel: _Channel, entry: Entry) -> None:
        exchange = Exchange(self._said() + 1, entry)
        self.script.exchanges.append(exchange)
        self.script.begins.setdefault(entry.line, []).append(exchange)
        request_id = exchange.id
        if request_id is None:
            exchange.ending = "answered"
            if exchange.method == "notifications/cancelled":
                self._end(channel, exchange.params.get("requestId"), entry, "cancelled")
            channel.last = exchange
            return
        channel.running[request_id] = exchange
        token = _meta(exchange.params).get("progressToken")
        if isinstance(token, str | int):
            channel.tokens[token] = exchange

    def _answered(self, channel: _Channel, request_id: Any, entry: Entry) -> None:
        question, steps = channel.questions.pop(request_id, (None, []))
        if question is not None:
            question.answer = entry
            steps.append(Await(question))

    def _end(self, channel: _Channel, request_id: Any, entry: Entry, ending: Ending) -> None:
        exchange = channel.running.pop(request_id, None) if isinstance(request_id, str | int) else None
        if exchange is None and request_id is None and len(channel.running) == 1:
            exchange = channel.running.popitem()[1]  # an error that names no request: there is only one
        if exchange is None:
            return
        exchange.ending = ending
        exchange.answer = entry if ending in ("answered", "failed") else None
        channel.last = exchange
        self.script.ends.setdefault(entry.line, []).append(exchange)

    def _close(self, channel: _Channel, entry: Entry) -> None:
        for request_id in list(channel.running):
            called_off = entry.sender == "client" or channel.kind == "post"
            self._end(channel, request_id, entry, "cancelled" if called_off else "cut")

    def _steps_for(self, channel: _Channel, entry: Entry) -> list[Step]:
        """Where something that the server said belongs."""
        exchange = self._named(channel, entry)
        if exchange is not None:
            return exchange.steps
        running = [one for one in channel.running.values() if one.method != LISTEN]
        if running:
            return running[-1].steps
        return channel.last.followers if channel.last is not None else self.script.opening

    def _named(self, channel: _Channel, entry: Entry) -> Exchange | None:
        params = entry.message.get("params")
        subscription = _meta(params).get(SUBSCRIPTION_ID)
        token = params.get("progressToken") if isinstance(params, Mapping) else None
        for name in (entry.about, subscription):
            if isinstance(name, str | int) and name in channel.running:
                return channel.running[name]
        named = channel.tokens.get(token) if isinstance(token, str | int) else None
        return named if named is not None and named.ending == "open" else None


def _meta(params: Any) -> Mapping[str, Any]:
    found = params.get("_meta") if isinstance(params, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def understand(entries: Sequence[Entry]) -> Script:
    """What happened in a recording."""
    return _Reader(entries).read()
