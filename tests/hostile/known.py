"""Known failures: patterns of case names, and the reason. A pattern that matches no failure is reported."""

_REPEATED = "repeated members are not refused yet"
_MALFORMED = "a malformed response leaves the request of the server without an answer"

KNOWN: dict[str, str] = {
    "202? jsonrpc twice": _REPEATED,
    "202? method twice": _REPEATED,
    "202? params twice": _REPEATED,
    "202? id twice": _REPEATED,
    "202? params.* twice": _REPEATED,
    "202? _meta.x twice": _REPEATED,
    "2026 the claimed revision twice": _REPEATED,
    '2025 method "sampling/createMessage" is unknown': "params of requests to clients are checked before the method",
    '2025 method "elicitation/create" is unknown': "params of requests to clients are checked before the method",
    '202? item "1 "': "integers in URIs may have spaces around them",
    "an elicitation answered with the error *": _MALFORMED,
    "an elicitation answered with result and error": _MALFORMED,
    "an elicitation answered with nothing": _MALFORMED,
}
