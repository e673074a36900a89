"""Known failures: patterns of case names, and the reason. A pattern that matches no failure is reported."""

KNOWN: dict[str, str] = {
    "a header name of 100,000 bytes": "the limit for headers does not count their names",
}
