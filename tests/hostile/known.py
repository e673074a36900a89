"""Known failures: patterns of case names, and the reason. A pattern that matches no failure is reported."""

KNOWN: dict[str, str] = {}
