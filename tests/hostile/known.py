"""Known failures: patterns of case names, and the reason. A pattern that matches no failure is reported."""

_MALFORMED = "a malformed response leaves the request of the server without an answer"
_UNANSWERED = "the client does not answer a request whose params are not an object"

KNOWN: dict[str, str] = {
    '202? item "1 "': "integers in URIs may have spaces around them",
    "an elicitation answered with the error *": _MALFORMED,
    "an elicitation answered with result and error": _MALFORMED,
    "an elicitation answered with nothing": _MALFORMED,
    "a body of spaces below the limit": "spaces around a message count as bytes of other members",
    "a header name of 100,000 bytes": "the limit for headers does not count their names",
    "ping with params *": _UNANSWERED,
    "elicitation with params null": _UNANSWERED,
    "elicitation with params 5": _UNANSWERED,
    'elicitation with params "x"': _UNANSWERED,
    "elicitation with params [[]]": _UNANSWERED,
    'elicitation requestedSchema {"type": "array"}': "it is answered with an internal error",
}
