"""Deviations of servers from the specification that a client understands all the same: their names, and what was met.

The rule: what can be understood without doubt is understood and noted here; what can't is the failure of what it belongs to,
and of nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from gemel.errors import shorten

logger = logging.getLogger("gemel")

#: Notes a deviation: its name, and what was sent.
Note: TypeAlias = Callable[[str, str], None]

#: What a client understands, by name.
DEVIATIONS: Mapping[str, str] = MappingProxyType(
    {
        # Connecting
        "odd-probe-answer": (
            "The server answered `server/discover` in a way that says nothing about its era, so it got the handshake."
        ),
        "initialized-refused": "The server refused `notifications/initialized`, and serves requests all the same.",
        # Messages
        "content-type": "The server sent a message with another content type than that of its form.",
        "batch": "The server sent messages in an array, which the revision does not allow.",
        "charset": "The server sent a message in another encoding than UTF-8, which its content type names.",
        "byte-order-mark": "The server sent a byte order mark before a message.",
        # Correlation
        "string-id": "The server wrote the id of a request, which is an integer, as a string.",
        "string-progress-token": "The server wrote a progress token, which is an integer, as a string.",
        "null-params": "The server sent `params: null` instead of leaving `params` out.",
        "null-error": "The server sent `error: null` beside a result or a method.",
        "null-result": "The server sent `result: null` beside an error or a method.",
        "null-id": "The server sent a notification with `id: null`.",
        "fractional-code": "The server wrote the code of an error as a number with a fraction of zero.",
        "string-code": "The server wrote the code of an error, which is an integer, as a string.",
        "error-without-message": "The server sent an error with a code and no message.",
        "empty-method": "The server sent an answer with an empty `method`.",
        "result-without-id": "The server sent the only answer that its HTTP response can hold without the id of the request.",
        "message-without-id": (
            "The server sent an answer or a request without a usable id. It belongs to nothing and was ignored."
        ),
        "invalid-notification": "The server sent a notification that is not valid. It was ignored.",
        "answer-to-another": "The server sent an answer that is not valid to another request. It was ignored.",
        "answer-to-post": "The server of HTTP+SSE answered a request in the response to its POST.",
        "event-name": "The server sent a message on an event stream as an event with another name than `message`.",
        "stray-event": "The server sent an event that is not a message on an event stream. It was ignored.",
        # Sessions
        "lost-session-status": (
            "The server reported a lost session with another HTTP status than 404; a new session was opened."
        ),
        # Lists and results
        "empty-cursor": "The server ended a list with an empty `nextCursor` instead of leaving it out.",
        "repeated-cursor": "The server gave a `nextCursor` that it had given before; the list ends there.",
        "null-list": "The server wrote `null` instead of an empty list.",
        "item-left-out": "An item of a list is not valid and was left out.",
        "member-left-out": "An optional member of a result, or of an item in it, is not valid and was left out.",
        "block-left-out": "A content block is not valid or not known and was left out.",
        "content-form": "The server sent a text or one block instead of a list, or a list in a message of a prompt.",
        "uri-missing": "The server sent the contents of a resource without its URI.",
        "content-missing": "A result has structured content and no `content`.",
        # Logins
        "metadata-member-left-out": (
            "Metadata about a login has a member that is not valid and that no login needs. It was left out."
        ),
        "metadata-endpoint-left-out": (
            "Metadata of an authorization server names an endpoint that must not be used and that not each login needs. It was "
            "left out."
        ),
        "token-member-left-out": (
            "The answer of a token endpoint has a member that can't be read and that a login works without. It was left out."
        ),
        "refresh-postponed": (
            "The authorization server did not refresh a token that was due. It is still valid, and is refreshed later."
        ),
        "login-not-revoked": "The authorization server did not revoke a login, which is forgotten here all the same.",
    }
)


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a server deviates from the specification, as `client.warnings` lists it.

    Attributes:
        name: Its name, such as "string-id".
        description: What the name means, in one sentence.
        detail: What the server sent when it was met first; may be empty.
        count: How often it was met.
    """

    name: str
    description: str
    detail: str
    count: int

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.name}: {self.description}{detail}"


def log_deviation(name: str, detail: str = "") -> None:
    """Log a deviation of a peer of which no record is kept, at level WARNING.

    Args:
        name: One of `DEVIATIONS`.
        detail: What it sent.
    """
    logger.warning("%s", Deviation(name=name, description=DEVIATIONS[name], detail=shorten(detail), count=1))


class Deviations:
    """What one server was met with. Each name is logged once at level WARNING, and further ones at level DEBUG."""

    def __init__(self) -> None:
        self._met: dict[str, Deviation] = {}

    def note(self, name: str, detail: str = "") -> None:
        """Note that the server deviated.

        Args:
            name: One of `DEVIATIONS`.
            detail: What it sent.
        """
        detail = shorten(detail)
        met = self._met.get(name)
        if met is None:
            self._met[name] = met = Deviation(name=name, description=DEVIATIONS[name], detail=detail, count=1)
            logger.warning("%s", met)
            return
        self._met[name] = msgspec.structs.replace(met, count=met.count + 1)
        logger.debug("%s again: %s", name, detail)

    def __iter__(self) -> Iterator[Deviation]:
        """Those that were met, in the order of their first time."""
        return iter(tuple(self._met.values()))
