"""Cookies of one server, as load balancers use them to send all requests of a client to the same process (RFC 6265).

They are returned to the origin that set them and to no other.
"""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

#: The most cookies that are kept, and the bytes of the name and value of each.
MAX_COOKIES = 50
MAX_COOKIE_BYTES = 4096

#: Between two cookies in one field: a comma in a date is not followed by a name.
_BETWEEN = re.compile(r",\s*(?=[!#$%&'*+.^_`|~0-9A-Za-z-]+=)")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-+\--:<-\[\]-~]*")


class _Cookie(NamedTuple):
    value: str
    #: When it expires, by `time.time`; None for never.
    expires: float | None


class CookieJar:
    """The cookies of one origin, for one caller."""

    def __init__(self) -> None:
        self._origin = ""
        #: By path and name, the oldest first.
        self._cookies: dict[tuple[str, str], _Cookie] = {}

    def take(self, url: str, field: str) -> None:
        """Keep the cookies of a response.

        Args:
            url: The URL of the request.
            field: The value of `Set-Cookie`; those of several fields joined by commas.
        """
        parts = urlsplit(url)
        origin = _origin(parts)
        if origin != self._origin:
            self._origin, self._cookies = origin, {}
        for text in _BETWEEN.split(field):
            self._take_one(parts, text)
        while len(self._cookies) > MAX_COOKIES:
            del self._cookies[next(iter(self._cookies))]

    def _take_one(self, url: SplitResult, text: str) -> None:
        pair, *rest = text.split(";")
        name, equals, value = (part.strip() for part in pair.partition("="))
        value = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
        if (
            not equals
            or not _NAME.fullmatch(name)
            or not _VALUE.fullmatch(value)
            or len(name) + len(value) > MAX_COOKIE_BYTES
        ):
            return
        attributes = {key.strip().lower(): given.strip() for key, _, given in (part.partition("=") for part in rest)}
        secure, host = "secure" in attributes, (url.hostname or "").lower()
        domain = attributes.get("domain", "").lower().removeprefix(".")
        if domain and domain != host and not host.endswith(f".{domain}"):
            return
        if url.scheme != "https" and (secure or name.startswith(("__Secure-", "__Host-"))):
            return
        path = attributes.get("path", "")
        path = path if path.startswith("/") else url.path.rpartition("/")[0] or "/"
        self._cookies.pop((path, name), None)
        expires = _expiry(attributes)
        if expires is None or expires > time.time():
            self._cookies[path, name] = _Cookie(value, expires)

    def field(self, url: str, own: str = "") -> str:
        """The value of `Cookie` for a request; "" for none.

        Args:
            url: The URL of the request.
            own: The cookies that the caller sends, which are not replaced.
        """
        parts, now = urlsplit(url), time.time()
        taken = {part.partition("=")[0].strip() for part in own.split(";")}
        pairs = [own] if own else []
        if _origin(parts) == self._origin:
            pairs += [
                f"{name}={cookie.value}"
                for (path, name), cookie in self._cookies.items()
                if _covers(path, parts.path or "/")
                and name not in taken
                and (cookie.expires is None or cookie.expires > now)
            ]
        return "; ".join(pairs)


def _origin(url: SplitResult) -> str:
    return f"{url.scheme}://{url.netloc.lower()}"


def _covers(path: str, requested: str) -> bool:
    """Whether a cookie of this path belongs to a request (RFC 6265, section 5.1.4)."""
    return requested == path or requested.startswith(path if path.endswith("/") else f"{path}/")


def _expiry(attributes: dict[str, str]) -> float | None:
    """When a cookie expires, by its attributes; None for never."""
    age = attributes.get("max-age", "")
    if re.fullmatch(r"-?[0-9]{1,12}", age):
        return time.time() + int(age)
    try:
        return parsedate_to_datetime(attributes["expires"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError, IndexError):
        return None
