"""Whether two messages say the same, and how to tell people where they don't. Pure; knows what is chance in a message:
ids, tokens, `_meta`, sealed states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

#: In the place of a member that isn't there.
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing", "__slots__": ()})()

#: What two peers never have in common: it is drawn, sealed or counted. Only whether it is there is compared.
_OPAQUE = frozenset({"requestState", "nextCursor", "cursor"})
#: Members without which a request means the same.
_EMPTY: tuple[Any, ...] = (None, {})
#: Differences of one message that are told.
_TOLD = 12


class Difference(msgspec.Struct, frozen=True):
    """One place where a message differs from the recording: `path` is like `result.content.0.text`.

    `what` names the request, `line` is its line in the recording. A value that isn't there shows as `nothing`.
    """

    what: str
    line: int
    path: str
    recorded: Any
    now: Any

    def __str__(self) -> str:
        about = f"{self.what} (line {self.line})" if self.line else self.what
        return f"{about}\n  {self.path}\n    recorded: {_shown(self.recorded)}\n    now:      {_shown(self.now)}"

    __repr__ = __str__


def told(differences: Sequence[Difference]) -> str:
    """Differences for people, the first ones of many."""
    lines = [str(one) for one in differences[:_TOLD]]
    if len(differences) > _TOLD:
        lines.append(f"… and {len(differences) - _TOLD} more")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:499]}…"


def plain(value: Any, ignore: Sequence[str], path: str = "") -> Any:
    """A value without what is chance in it and without the paths in `ignore` (`params.arguments.now`, `*.text`)."""
    if isinstance(value, Mapping):
        found = {}
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            if name == "_meta" or any(fnmatchcase(inner, pattern) for pattern in ignore):
                continue
            if name == "inputRequests" and isinstance(item, Mapping):  # their keys are the server's own
                item = list(item.values())
            found[name] = plain(item, ignore, inner)
        return found
    if isinstance(value, list):
        return [plain(item, ignore, f"{path}.{place}") for place, item in enumerate(value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def request_of(method: str, params: Any, ignore: Sequence[str]) -> Any:
    """What a request asks, in the form in which two of them are compared. Who asks doesn't count."""
    if method in ("initialize", "server/discover"):
        return {}
    found = plain({"params": params if isinstance(params, Mapping) else {}}, ignore)["params"]
    if method in ("tools/call", "prompts/get") and found.get("arguments", ABSENT) in _EMPTY:
        found.pop("arguments", None)
    return found


def key_of(method: str, params: Any, ignore: Sequence[str]) -> bytes:
    """The same for two requests that ask the same."""
    return msgspec.json.encode([method, request_of(method, params, ignore)], order="deterministic")


def subject(method: str, params: Any) -> str:
    """A request in a few words: its method and what it names."""
    given = params if isinstance(params, Mapping) else {}
    name = given.get("name") or given.get("uri")
    return f"{method} {name!r}" if isinstance(name, str) else method


def differences(recorded: Any, now: Any, *, path: str, opaque: bool = True) -> Iterator[tuple[str, Any, Any]]:
    """Path, recorded value and value of now, for each place where two plain values differ."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for name in [*recorded, *(name for name in now if name not in recorded)]:
            one, two = recorded.get(name, ABSENT), now.get(name, ABSENT)
            if not (opaque and name in _OPAQUE and one is not ABSENT and two is not ABSENT):
                yield from differences(one, two, path=f"{path}.{name}", opaque=opaque)
    elif isinstance(recorded, list) and isinstance(now, list):
        for place in range(max(len(recorded), len(now))):
            one = recorded[place] if place < len(recorded) else ABSENT
            two = now[place] if place < len(now) else ABSENT
            yield from differences(one, two, path=f"{path}.{place}", opaque=opaque)
    elif recorded is not now and (recorded != now or isinstance(recorded, bool) is not isinstance(now, bool)):
        yield path, recorded, now


def nearest(asked: Any, recorded: Iterable[tuple[Any, Any]]) -> tuple[Any, list[tuple[str, Any, Any]]] | None:
    """Of pairs (anything, plain params), the thing whose params differ in the fewest places, and these places."""
    best: tuple[int, Any, list[tuple[str, Any, Any]]] | None = None
    for thing, params in recorded:
        found = list(differences(params, asked, path="params", opaque=False))
        weight = len(found) + 100 * any(path in ("params.name", "params.uri") for path, _, _ in found)
        if best is None or weight < best[0]:
            best = weight, thing, found
    return None if best is None else best[1:]
