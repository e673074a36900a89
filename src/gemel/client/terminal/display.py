"""Make text and addresses from a server harmless before a person sees them, and lay them out for a terminal.

Everything that a server sends passes `gemel.visible` before it reaches a terminal: no control character,
escape sequence, invisible character or change of writing direction has an effect there. rich only gets text that is
escaped already, as `Text`, so that its markup is not interpreted.
"""

from __future__ import annotations

import ipaddress
import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, TextIO
from urllib.parse import urlsplit

from gemel.errors import shorten
from gemel.visible import escape_line

if TYPE_CHECKING:
    from rich.console import Console

#: Columns: longer lines are hard to read, however wide the terminal is.
MAX_WIDTH = 100
#: Characters of an address; a person can't check a longer one.
MAX_URL = 4096


# ---------------------------------------------------------------- streams


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is an open terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def is_styled(stream: TextIO) -> bool:
    """Return whether to write bold, dim and colours: on a terminal that knows them, unless NO_COLOR is set."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width(stream: TextIO) -> int:
    """Return the columns to use: COLUMNS, the terminal's width or 80; between 20 and MAX_WIDTH."""
    columns = os.environ.get("COLUMNS", "")
    try:
        width = int(columns) if columns.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        width = 0
    return min(max(width, 20), MAX_WIDTH) if width > 0 else 80


def write(stream: TextIO, text: str) -> None:
    """Write and flush; characters that the stream's encoding lacks become escapes."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


class Layout:
    """Wraps escaped text to the width of a stream and styles it, with rich.

    Text for files and pipes stays as it is, and so does everything if rich (the extra `cli`) is not installed.
    """

    def __init__(self, stream: TextIO) -> None:
        self.width = terminal_width(stream)
        self._console = rich_console(stream, self.width) if is_terminal(stream) and find_spec("rich") else None

    def lines(self, text: str, prefix: str = "", *, style: str = "", prefix_style: str = "") -> list[str]:
        """Return the lines of an escaped text, each after `prefix`; the styles are rich's, such as "bold"."""
        if self._console is None:
            return [f"{prefix}{line}".rstrip() for line in text.split("\n")]
        from rich.text import Text

        console = self._console
        width = max(self.width - len(prefix) - 1, 2)  # some terminals draw the bar two columns wide
        with console.capture() as capture:
            for line in Text(text).wrap(console, width):
                line.rstrip()
                console.print(Text.assemble((prefix if line else prefix.rstrip(), prefix_style), (line.plain, style)))
        return capture.get().removesuffix("\n").split("\n")


def rich_console(stream: TextIO, width: int) -> Console:
    """Return a rich console that interprets nothing in the text and writes styles only where `is_styled` says so."""
    from rich.console import Console

    return Console(
        file=stream,
        width=width,
        height=25,  # with both, rich doesn't ask the terminal itself
        color_system="auto" if is_styled(stream) else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


# ---------------------------------------------------------------- addresses


class PageAddress(NamedTuple):
    """An address that may be shown and, after consent, opened: `url` is both what is shown and what is opened."""

    url: str
    host: str
    warnings: tuple[str, ...]


def check_page_url(url: str) -> PageAddress:
    """Check an address that a server wants opened in a browser (elicitation in URL mode).

    Args:
        url: the address as the server sent it.

    Returns:
        The address in ASCII letters, its host with the port, and warnings for the user.

    Raises:
        ValueError: it is not an http or https URL with a host, contains characters that hide what it is, or is too long.
    """
    if len(url) > MAX_URL:
        raise ValueError(f"the address is longer than {MAX_URL} characters")
    if re.search(r"[\s\\]", url) or escape_line(url) != url:
        raise ValueError(f"the address contains characters that hide what it is: {shorten(escape_line(url))}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        raise ValueError(f"{shorten(escape_line(url))} is not an address: {exc}") from None
    if "%" in host:
        raise ValueError(f"the address contains characters that hide what it is: {shorten(escape_line(url))}")
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{shorten(escape_line(url))} is not a web page: only http and https are opened")
    ascii_host = _ascii_host(host)
    if not host.isascii():
        url = url.replace(parts.netloc, parts.netloc.lower().replace(host, ascii_host), 1)
    user = parts.netloc.rpartition("@")[0]
    warnings = tuple(_url_warnings(parts.scheme, user, host, _number(ascii_host)))
    return PageAddress(url, ascii_host if port is None else f"{ascii_host}:{port}", warnings)


def _ascii_host(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise ValueError(f"{shorten(escape_line(host))} is not a valid host name in an address") from None


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that browsers take a host for, however it is written: `127.1`, `0x7f.1`, `2130706433`.

    https://url.spec.whatwg.org/#concept-ipv4-parser
    """
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    parts = host.removesuffix(".").split(".")
    if len(parts) > 4 or not all(re.fullmatch("0x[0-9a-f]*|[0-9]+", part) for part in parts):
        return None
    try:
        numbers = [
            int(part[2:] or "0", 16) if part[:2] == "0x" else int(part, 8 if part[0] == "0" else 10) for part in parts
        ]
        *most, last = numbers
        if max(most, default=0) > 0xFF or last >= 1 << 8 * (5 - len(parts)):
            return None
        return ipaddress.IPv4Address(sum(number << 8 * (3 - place) for place, number in enumerate(most)) + last)
    except ValueError:
        return None


def _url_warnings(
    scheme: str, user: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> list[str]:
    warnings = []
    if user:
        warnings.append(f"The text before the @ is not the host: the page is on {escape_line(host)}.")
    if not host.isascii() or any(label.startswith("xn--") for label in host.split(".")):
        warnings.append(f"The host name has letters that may look like others: {_unicode_host(host)}")
    local = host == "localhost" or host.endswith(".localhost")
    if address is not None:
        local = address.is_loopback
        text = "" if str(address) == host else f": {address}"
        warnings.append(f"The host is an IP address without a name{text}.")
    if scheme == "http" and not local:
        warnings.append("The connection is not encrypted (http): others can read and change what is sent.")
    return warnings


def _unicode_host(host: str) -> str:
    try:
        return escape_line(host.encode().decode("idna") if host.isascii() else host)
    except UnicodeError:
        return escape_line(host)
