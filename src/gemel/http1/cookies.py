"""Read our cookie among those of other programs: a browser sends what every program on this host has set, on whatever port."""

from __future__ import annotations

from collections.abc import Iterable


def cookie_values(headers: Iterable[tuple[bytes, bytes]], name: str) -> list[str]:
    """Return the values of a cookie, each once.

    What other cookies look like does not matter; several values come of cookies of one name for several paths or domains.

    Args:
        headers: The headers of the request.
        name: The name of the cookie.
    """
    values: dict[str, None] = {}
    for header, text in headers:
        if header.lower() == b"cookie":
            for part in text.decode("latin-1").split(";"):
                key, _, value = part.partition("=")
                if key.strip() == name:
                    values[value.strip()] = None
    return list(values)
