"""What a scripted peer expects, and the words for what came instead. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from hinge.errors import shorten
from hinge.testing.comparing import differences

Message: TypeAlias = dict[str, Any]
#: What a peer waits for: the method of a request or notification, or members that the message has to have.
Expected: TypeAlias = str | Mapping[str, Any]


def words_of(what: Expected | Callable[[Message], object] | None) -> str:
    """What is expected, in words."""
    if what is None:
        return "a message"
    if callable(what):
        return "a certain message"
    return what if isinstance(what, str) else f"a message with {shown(what)}"


def problem_of(what: Expected | None, got: Message | bytes) -> str | None:
    """What keeps a message from being the expected one."""
    if isinstance(got, bytes):
        return f"got what is no message: {shown(got)}"
    if what is None:
        return None
    if isinstance(what, str):
        return None if got.get("method") == what else f"got {shown(got)}"
    lacking = list(differences(what, _part(got, what), path="it", opaque=False))
    if not lacking:
        return None
    path, wanted, found = lacking[0]
    return f"{path.removeprefix('it.')} is {found!r}, not {wanted!r}, in {shown(got)}"


def _part(got: Any, what: Any) -> Any:
    """What a message holds of the members that are looked for."""
    if isinstance(what, Mapping) and isinstance(got, Mapping):
        return {name: _part(got[name], item) for name, item in what.items() if name in got}
    return got


def brief(message: Message | bytes) -> str:
    """A message in a word or two."""
    if isinstance(message, bytes):
        return shown(message)
    if "method" in message:
        return str(message["method"])
    return f"an answer to {message.get('id')!r}"


def shown(message: Any) -> str:
    """A message as it stands, shortened."""
    if isinstance(message, bytes):
        return repr(message[:300])
    return shorten(msgspec.json.encode(message).decode(), 600)
