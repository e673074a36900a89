"""Content-Type and Accept: what a body is declared to be, and which of the two kinds of answer a client takes
(MHTTP-03, MHTTP-06, LHTTP-02, LHTTP-05, LHTTP-12). Must not know what stands in a body or who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from re import compile as regex
from typing import Final

from hinge.errors import shorten
from hinge.protocol.http.headers import Headers, Refusal

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
#: What every POST of a client says besides the mirrored headers (MHTTP-03, LHTTP-02).
POST_HEADERS: Final[Mapping[str, str]] = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENT_STREAM}"}
#: What a client says when it opens a stream with GET (LHTTP-12).
STREAM_HEADERS: Final[Mapping[str, str]] = {"Accept": EVENT_STREAM}

#: Values that are longer are judged afresh each time, so that a cache never holds much.
_CACHED_LENGTH: Final = 256

# --- Content-Type -----------------------------------------------------------------------------------------------------

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_MEDIA = regex(rf"[ \t]*({_TOKEN}/{_TOKEN})[ \t]*")
_ESCAPE = regex(r"\\(.)")
_PARAMETER = regex(rf';[ \t]*(?:({_TOKEN})=({_TOKEN}|"(?:[^"\\]|\\.)*")[ \t]*)?')


def parse_media_type(value: str) -> tuple[str, dict[str, str]] | None:
    """A Content-Type: the media type and its parameters, names in lower case; None if it is none (RFC 9110 §8.3.1)."""
    found = _MEDIA.match(value)
    if found is None:
        return None
    parameters: dict[str, str] = {}
    end = found.end()
    while end < len(value):
        parameter = _PARAMETER.match(value, end)
        if parameter is None:
            return None
        end = parameter.end()
        if parameter[1]:
            text = parameter[2]
            if text[0] == '"':
                text = _ESCAPE.sub(r"\1", text[1:-1])
            if parameters.setdefault(parameter[1].lower(), text) != text:
                return None
    return found[1].lower(), parameters


def media_type(value: str | None) -> str:
    """The bare media type of a Content-Type, in lower case; "" if there is none or it can't be read."""
    if value is None or value in (JSON, EVENT_STREAM):
        return value or ""
    parsed = parse_media_type(value)
    return parsed[0] if parsed else ""


def _wrong_type(said: str) -> Refusal:
    text = f"Content-Type must be application/json (UTF-8), {said}. Send 'Content-Type: application/json'"
    return Refusal(415, text, ((b"accept", JSON.encode()),))


_CODED = Refusal(415, "A body must come as it is, without a Content-Encoding", ((b"accept-encoding", b"identity"),))
_NO_TYPE = _wrong_type("but there was none")


def _judge_type(value: bytes) -> Refusal | None:
    text = value.decode("latin-1")
    parsed = parse_media_type(text)
    if parsed is None or parsed[0] != JSON or parsed[1].get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        return _wrong_type(f"not {shorten(text.strip(' '))!a}")
    return None


_judge_type_cached = lru_cache(maxsize=64)(_judge_type)


def check_content_type(headers: Headers) -> Refusal | None:
    """415 unless the body is declared as exactly application/json, in UTF-8 (other parameters don't matter).

    An exact match, since a page of another site may send a few other types without asking first (CVE-2026-33252). A body
    in a coding such as gzip is refused, too: it is read as it comes (RFC 9110 §15.5.16).
    """
    coding = headers.raw.get(b"content-encoding")
    if coding is not None and coding.strip().lower() != b"identity":
        return _CODED
    value = headers.raw.get(b"content-type")
    if value == b"application/json":
        return None
    if value is None:
        return _NO_TYPE
    return _judge_type_cached(value) if len(value) <= _CACHED_LENGTH else _judge_type(value)


# --- Accept -----------------------------------------------------------------------------------------------------------

_USUAL: Final = POST_HEADERS["Accept"].encode()
#: Flags: what a client takes.
TAKES_JSON: Final = 1
TAKES_EVENTS: Final = 2
#: What a check demands, besides one flag alone: both of them, or any of them.
BOTH: Final = TAKES_JSON | TAKES_EVENTS
EITHER: Final = 0

_ZERO = regex(r"0(?:\.0{0,3})?")


def _quality(parameters: Iterable[str]) -> bool:
    """Whether a range is wanted: anything but `q=0`; a q that can't be read counts as wanted."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip(" \t").lower() == "q":
            return _ZERO.fullmatch(value.strip(" \t")) is None
    return True


def _judge_accept(value: bytes) -> int:
    wanted: dict[str, bool] = {}
    for part in value.decode("latin-1").lower().split(","):
        name, *parameters = part.split(";")
        name = name.strip(" \t")
        wanted[name] = wanted.get(name, False) or _quality(parameters)
    flags = 0
    for flag, ranges in ((TAKES_JSON, (JSON, "application/*", "*/*")), (TAKES_EVENTS, (EVENT_STREAM, "text/*", "*/*"))):
        # The most exact range decides (RFC 9110 §12.5.1).
        if next((wanted[name] for name in ranges if name in wanted), False):
            flags |= flag
    return flags


_judge_accept_cached = lru_cache(maxsize=64)(_judge_accept)


def accepted(headers: Headers) -> int:
    """What the client takes: TAKES_JSON, TAKES_EVENTS, both or 0. Without an Accept header it takes anything."""
    value = headers.raw.get(b"accept")
    if value is None:
        return BOTH
    return _judge_accept_cached(value) if len(value) <= _CACHED_LENGTH else _judge_accept(value)


def check_accept(headers: Headers, need: int) -> Refusal | None:
    """406 unless the client takes what is needed.

    BOTH for a modern POST (MHTTP-03). TAKES_EVENTS for the GET of a handshake session (LHTTP-12). EITHER for a POST of
    the handshake revisions: clients of that age that name one type only are served, in that type (`accepted` tells).
    """
    if headers.raw.get(b"accept") == _USUAL:
        return None
    flags = accepted(headers)
    if flags & need == need if need else flags:
        return None
    return _not_acceptable(need)


@lru_cache(maxsize=4)
def _not_acceptable(need: int) -> Refusal:
    names = [name for flag, name in ((TAKES_JSON, JSON), (TAKES_EVENTS, EVENT_STREAM)) if not need or need & flag]
    text = f"Accept must list {' and '.join(names) if need else ' or '.join(names)}. Send 'Accept: {', '.join(names)}'"
    return Refusal(406, text)
