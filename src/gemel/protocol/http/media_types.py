"""Content-Type and Accept: parse media types and decide whether they fit.

Specification: Transports, section "Streamable HTTP", "Sending Messages to the Server".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from re import Pattern
from re import compile as regex
from re import sub as substitute
from typing import Final

from gemel.errors import shorten
from gemel.protocol.http.request import Refusal

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
HTML: Final = "text/html"
#: What every POST of a client sends besides the mirrored headers.
POST_HEADERS: Final[Mapping[str, str]] = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENT_STREAM}"}
#: What a client sends when it opens a stream with GET.
STREAM_HEADERS: Final[Mapping[str, str]] = {"Accept": EVENT_STREAM}

# --- Content-Type -----------------------------------------------------------------------------------------------------

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"


@cache
def _patterns() -> tuple[Pattern[str], Pattern[str]]:
    """A media type, and a parameter. Compiling them takes longer than importing this file, and many programs need neither."""
    return (
        regex(rf"[ \t]*({_TOKEN}/{_TOKEN})[ \t]*"),
        regex(rf';[ \t]*(?:({_TOKEN})=({_TOKEN}|"(?:[^"\\]|\\.)*")[ \t]*)?'),
    )


def parse_media_type(value: str) -> tuple[str, dict[str, str]] | None:
    """Parse a Content-Type (RFC 9110 §8.3.1).

    Args:
        value: The header value.

    Returns:
        The media type and its parameters, names in lower case; None if the value is malformed.
    """
    media, parameter_of = _patterns()
    match = media.match(value)
    if match is None:
        return None
    parameters: dict[str, str] = {}
    end = match.end()
    while end < len(value):
        parameter = parameter_of.match(value, end)
        if parameter is None:
            return None
        end = parameter.end()
        if parameter[1]:
            text = parameter[2]
            if text[0] == '"':
                text = substitute(r"\\(.)", r"\1", text[1:-1])
            if parameters.setdefault(parameter[1].lower(), text) != text:
                return None
    return match[1].lower(), parameters


def media_type(value: str | None) -> str:
    """Return the media type of a Content-Type without parameters.

    Args:
        value: The header value, None if absent.

    Returns:
        The media type in lower case; "" if it is absent or malformed.
    """
    if value is None or value in (JSON, EVENT_STREAM):
        return value or ""
    parsed = parse_media_type(value)
    return parsed[0] if parsed else ""


def _wrong_type(detail: str) -> Refusal:
    text = f"Content-Type must be application/json (UTF-8), {detail}. Send 'Content-Type: application/json'"
    return Refusal(415, text, ((b"accept", JSON.encode()),))


_CODED = Refusal(415, "A body must come as it is, without a Content-Encoding", ((b"accept-encoding", b"identity"),))
_NO_TYPE = _wrong_type("but there was none")


def check_content_type(content_type: bytes | None, content_encoding: bytes | None = None) -> Refusal | None:
    """Require a body of exactly application/json in UTF-8; other parameters are ignored.

    The match is exact because a web page may send a few other types across origins without asking first
    (CVE-2026-33252). A compressed body is refused too (RFC 9110 §15.5.16).

    Args:
        content_type: The Content-Type header, None if absent.
        content_encoding: The Content-Encoding header, None if absent.

    Returns:
        415, or None if the body is acceptable.
    """
    if content_encoding is not None and content_encoding.strip().lower() != b"identity":
        return _CODED
    if content_type is None:
        return _NO_TYPE
    text = content_type.decode("latin-1")
    parsed = parse_media_type(text)
    if parsed is None or parsed[0] != JSON or parsed[1].get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        return _wrong_type(f"not {shorten(text.strip(' '))!a}")
    return None


# --- Accept -----------------------------------------------------------------------------------------------------------

#: Flags: the kinds of answer that a client accepts.
TAKES_JSON: Final = 1
TAKES_EVENTS: Final = 2
#: What `check_accept` can demand besides one flag: both of them, or any of them.
BOTH: Final = TAKES_JSON | TAKES_EVENTS
EITHER: Final = 0

_ZERO = regex(r"0(?:\.0{0,3})?")


def _quality(parameters: Iterable[str]) -> bool:
    """Whether a media range is accepted: anything but `q=0`. A malformed q counts as accepted."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip(" \t").lower() == "q":
            return _ZERO.fullmatch(value.strip(" \t")) is None
    return True


def parse_accept(value: bytes | None) -> int:
    """Read which kinds of answer a client accepts.

    Args:
        value: The Accept header. Without one a client accepts anything.

    Returns:
        TAKES_JSON, TAKES_EVENTS, both or 0.
    """
    if value is None:
        return BOTH
    accepted: dict[str, bool] = {}
    for part in value.decode("latin-1").lower().split(","):
        name, *parameters = part.split(";")
        name = name.strip(" \t")
        accepted[name] = accepted.get(name, False) or _quality(parameters)
    flags = 0
    for flag, ranges in ((TAKES_JSON, (JSON, "application/*", "*/*")), (TAKES_EVENTS, (EVENT_STREAM, "text/*", "*/*"))):
        # The most specific range decides (RFC 9110 §12.5.1).
        if next((accepted[name] for name in ranges if name in accepted), False):
            flags |= flag
    return flags


def takes_page(value: bytes | None) -> bool:
    """Whether a GET comes from a browser that opens an address: it lists HTML, and no event stream.

    Args:
        value: The Accept header.
    """
    ranges = [part.strip(" \t").split(";") for part in (value or b"").decode("latin-1").lower().split(",")]
    quality = {name.strip(" \t"): _quality(parameters) for name, *parameters in ranges}
    return quality.get(HTML, False) and EVENT_STREAM not in quality


def check_accept(accepts: int, need: int) -> Refusal | None:
    """Require that a client accepts the kinds of answer that are needed.

    Args:
        accepts: What `parse_accept` returned.
        need: BOTH for a POST of the stateless era, TAKES_EVENTS for the GET of an HTTP session, EITHER for a POST of
            the handshake era: clients of that age that name one type are answered in that type.

    Returns:
        406 with the header to send, or None.
    """
    if accepts & need == need if need else accepts:
        return None
    names = [name for flag, name in ((TAKES_JSON, JSON), (TAKES_EVENTS, EVENT_STREAM)) if not need or need & flag]
    text = f"Accept must list {' and '.join(names) if need else ' or '.join(names)}. Send 'Accept: {', '.join(names)}'"
    return Refusal(406, text)
