"""Listens to every message that Gemel sends in this process, by any transport, and says in which revision it goes out.

It stands where messages leave the session for the channel, and where errors are made that need no session. Knows nothing
of schemas. Loaded in the process of the tests and, by `sitecustomize.py`, in those that they start.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple


class Sent(NamedTuple):
    """One message as it left: who sent it, in which revision (as far as its sender knew), and what it answers."""

    side: str
    revision: str
    data: bytes
    answers: str | None = None


Note = Callable[[Sent], None]

#: So many messages of one process are written down.
MOST = 10_000

_IDS = re.compile(rb'("id"|"progressToken"|"requestId"|"progress"|/subscriptionId"):(-?\d+(?:\.\d+)?|"[\w.:-]*")')


def likeness(sent: Sent) -> int:
    """Equal for messages that differ in ids, tokens and progress only: then it is enough to check one of them."""
    text = _IDS.sub(lambda found: found[1] + (b':"x"' if found[2][:1] == b'"' else b":1"), sent.data)
    return hash((*sent[:2], text, sent.answers))


def listen(note: Note) -> None:
    """Tell of every message from now on, in whatever thread it is sent."""
    _errors(note)
    _answers(note)
    _questions(note)


def listen_after(spec: Any, folder: str) -> None:
    """Listen as soon as this module of the session is loaded; each message goes to the process's own file in the folder."""
    plain, written = spec.loader.exec_module, set[int]()

    def write(sent: Sent) -> None:
        """Once for all that are alike."""
        alike = likeness(sent)
        if alike in written or len(written) >= MOST:
            return
        written.add(alike)
        line = json.dumps([*sent[:2], sent.data.decode(errors="replace"), sent.answers])
        try:
            with open(os.path.join(folder, str(os.getpid())), "a") as file:
                file.write(f"{line}\n")
        except OSError:
            return  # the tests are over

    def exec_module(module: Any) -> None:
        plain(module)
        listen(write)

    spec.loader.exec_module = exec_module


def _errors(note: Note) -> None:
    from gemel import jsonrpc

    plain = jsonrpc.encode_failure

    @functools.wraps(plain)
    def encode_failure(request_id: Any, error: Any) -> bytes:
        data = plain(request_id, error)
        note(Sent("server", "", data))
        return data

    jsonrpc.encode_failure = encode_failure


def _answers(note: Note) -> None:
    """What ends a call: a result is of the revision that governs the call, or that `initialize` agreed on."""
    from gemel.session import Session

    plain = Session.answer

    @functools.wraps(plain)
    async def answer(self: Session, call: Any) -> Any:
        reply = await plain(self, call)
        if reply is not None and hasattr(call, "method"):
            revision = self.connection.handshake.revision if call.inline else call.revision
            note(Sent(_side(self.connection), revision, reply.data, call.method))
            if reply.follow is not None:
                note(Sent(_side(self.connection), revision, reply.follow.data))
        return reply

    Session.answer = answer  # type: ignore[method-assign]  # the same, overheard


def _questions(note: Note) -> None:
    """Requests and notifications of ours."""
    from gemel.protocol.connection import Connection
    from gemel.session import Session

    write, notify = Connection.write_request, Session.send_notification

    @functools.wraps(write)
    def heard_write(self: Any, *arguments: Any) -> Any:
        message = write(self, *arguments)
        note(Sent(_side(self), _spoken(self, message.about), message.data))
        return message

    @functools.wraps(notify)
    async def heard_notify(self: Session, data: bytes, method: str, about: Any = None) -> None:
        note(Sent(_side(self.connection), _spoken(self.connection, about), data))
        await notify(self, data, method, about)

    Connection.write_request = heard_write  # type: ignore[assignment,method-assign]  # the same, overheard
    Session.send_notification = heard_notify  # type: ignore[method-assign]  # the same, overheard


def _side(connection: Any) -> str:
    return "client" if connection.description is None else "server"


def _spoken(connection: Any, about: Any) -> str:
    """The revision of what isn't an answer: that of the call it belongs to, else the conversation's."""
    if about is not None:
        return str(about.revision)
    return str(
        connection.handshake.revision if connection.era.knows(connection.handshake.revision) else connection.era.latest
    )
