"""The commands that `POST /api/commands` takes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from gemel.protocol.eras.base import EraName
from gemel.schema.methods import Feature
from gemel.schema.notifications import LoggingLevel

#: What a client may be without.
Capability: TypeAlias = Literal["elicitation", "sampling", "roots", "tasks", "progress"]


class _Command(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="do", rename="camel"):
    pass


class Connect(_Command, tag="connect"):
    """Connect in one era, or connect again."""

    era: EraName


class Disconnect(_Command, tag="disconnect"):
    """End the connection of one era."""

    era: EraName


class Restart(_Command, tag="restart"):
    """Start the program of the target again, and connect as before."""


class AsClient(_Command, tag="as_client"):
    """Connect again as a client that lacks some capabilities; in both eras by default."""

    without: list[Capability]
    era: EraName | None = None


class Refresh(_Command, tag="refresh"):
    """List again what the server offers."""

    era: EraName


class MakeCall(_Command, tag="call"):
    """Send a request."""

    method: str
    params: dict[str, Any] = {}
    era: EraName | None = None
    both: bool = False
    id: str | None = None


class Cancel(_Command, tag="cancel"):
    """Cancel a call."""

    call: str


class Answer(_Command, tag="answer"):
    """Answer a question of the server."""

    question: str
    action: Literal["accept", "decline", "cancel"] | None = None
    content: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


class Listen(_Command, tag="listen"):
    """Subscribe to changes: of lists, all by default, and of resources."""

    era: EraName
    changes: tuple[Feature, ...] = get_args(Feature)
    uris: tuple[str, ...] = ()


class Unlisten(_Command, tag="unlisten"):
    """End the subscription."""

    era: EraName


class StartLogin(_Command, tag="login"):
    """Log in to the server, with the browser."""

    era: EraName


class Logout(_Command, tag="logout"):
    """Forget the login."""

    era: EraName


class Copy(_Command, tag="copy"):
    """Write a call as text to use elsewhere: a call that was made, or one that is described here."""

    form: Literal["gemel", "curl", "pytest"] = msgspec.field(name="as")
    call: str | None = None
    era: EraName | None = None
    method: str | None = None
    params: dict[str, Any] = {}


class ShowApp(_Command, tag="app"):
    """Read a page of the server and serve it for a frame."""

    era: EraName
    uri: str


class LogLevel(_Command, tag="log_level"):
    """Set the lowest level of log messages."""

    era: EraName
    level: LoggingLevel


class Clear(_Command, tag="clear"):
    """Drop all events but the current state."""


Command: TypeAlias = (
    Connect
    | Disconnect
    | Restart
    | AsClient
    | Refresh
    | MakeCall
    | Cancel
    | Answer
    | Listen
    | Unlisten
    | StartLogin
    | Logout
    | Copy
    | ShowApp
    | LogLevel
    | Clear
)

_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


def read_command(data: bytes) -> Command:
    """Read a command. Raises ValueError with one line that says what is wrong."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        text = str(exc) or "The command is nested too deep"
        if "`$.do`" in text or "`do`" in text:
            names = ", ".join(sorted(str(kind.__struct_config__.tag) for kind in _Command.__subclasses__()))
            text += f"; `do` is one of {names}"
        raise ValueError(text) from exc
