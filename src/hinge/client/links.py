"""A page that a server wants opened, as the user must see it: the whole address, its host, and what is odd about it (ELIC-20).

Pure: it opens nothing and asks nobody.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from hinge.client.screen import plain
from hinge.errors import shorten

#: A longer address can't be looked over.
LONGEST = 4096


class Page(NamedTuple):
    """An address that may be shown and, once the user agreed, opened: what is shown is what is opened."""

    url: str
    host: str
    warnings: tuple[str, ...]


def page_of(url: str) -> Page:
    """The page of an address. Raises ValueError for one that no browser should be given."""
    if len(url) > LONGEST:
        raise ValueError(f"the address is longer than {LONGEST} characters")
    if re.search(r"[\s\\]", url) or not all(character.isprintable() for character in url):
        raise ValueError(f"the address has characters in it that hide what it is: {shorten(plain(url))}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        raise ValueError(f"{shorten(plain(url))} is no address: {exc}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{shorten(plain(url))} is no page: only http and https are opened")
    ascii_host = _ascii(host)
    if not host.isascii():
        url = url.replace(parts.netloc, parts.netloc.lower().replace(host, ascii_host), 1)
    user = parts.netloc.rpartition("@")[0]
    return Page(url, ascii_host if port is None else f"{ascii_host}:{port}", tuple(_warnings(parts.scheme, user, host)))


def _ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise ValueError(f"{shorten(plain(host))} is no name of a host") from None


def _warnings(scheme: str, user: str, host: str) -> list[str]:
    found = []
    if user:
        found.append(f"What stands before the @ is no host: the page is on {plain(host)}.")
    if not host.isascii() or any(label.startswith("xn--") for label in host.split(".")):
        found.append(f"The host has letters that may look like others: {_decoded(host)}")
    local = host == "localhost" or host.endswith(".localhost")
    try:
        local = ipaddress.ip_address(host).is_loopback
        found.append("The host is a bare address without a name.")
    except ValueError:
        pass
    if scheme == "http" and not local:
        found.append("It is not encrypted: others can read and change what is sent (http, not https).")
    return found


def _decoded(host: str) -> str:
    try:
        return plain(host.encode().decode("idna") if host.isascii() else host)
    except UnicodeError:
        return plain(host)
