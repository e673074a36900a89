"""Host and Origin checks, the protection against DNS rebinding. On by default for every bind.

Specification: Transports, section "Security Warning" of Streamable HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from re import compile as regex
from typing import Final, NamedTuple

from gemel.errors import DefinitionError, shorten
from gemel.protocol.http.request import OWS, Refusal

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_NAME = regex(r"[0-9a-z_](?:[0-9a-z._-]*[0-9a-z_.-])?")
_PORT = regex(r"[0-9]{1,5}")
_SCHEME = regex(r"[a-z][a-z0-9+.-]*")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
#: A name is at most 253 characters (RFC 1035); an Origin of an extension may be longer.
_LONGEST: Final = 512


class Authority(NamedTuple):
    """A parsed `host[:port]`: the name in lower case or the canonical IP address (IPv6 without brackets)."""

    host: str
    port: int | None
    is_ip: bool


def parse_authority(text: str) -> Authority | None:
    """Parse `host[:port]` strictly: no user info, no zone, digits only in ports (RFC 9110 §7.2).

    A trailing dot is kept: `localhost.` differs from `localhost` and is served only if it is listed.

    Args:
        text: The value of a Host header, or the part of an origin after `://`.

    Returns:
        The parsed authority, or None if the text is malformed.
    """
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        address = _ip_address(inside) if bracket and ":" in inside else None
        if address is None or (rest and rest[0] != ":"):
            return None
        host, has_port, port = address, rest != "", rest[1:]
    else:
        name, colon, port = text.lower().partition(":")
        if not text.isascii() or _NAME.fullmatch(name) is None:
            return None
        address = _ip_address(name) if name[-1].isdigit() else None
        host, has_port = address or name, colon != ""
    if not has_port:
        return Authority(host, None, address is not None)
    if _PORT.fullmatch(port) is None or not 0 < int(port) <= 65535:
        return None
    return Authority(host, int(port), address is not None)


def _ip_address(text: str) -> str | None:
    """The address in its canonical form; None for names, zones and what only old resolvers read (`127.1`)."""
    from ipaddress import ip_address

    try:
        return None if "%" in text else str(ip_address(text))
    except ValueError:
        return None


class WebOrigin(NamedTuple):
    """A parsed http(s) origin: two that are equal are the same, however they were written."""

    scheme: str
    host: str
    port: int | None


def parse_origin(text: str) -> WebOrigin | None:
    """An http(s) origin, as browsers write it: `scheme://host[:port]` and nothing more (RFC 6454 §6.2)."""
    scheme, _, rest = text.partition("://")
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        return None
    authority = parse_authority(rest)
    return authority and WebOrigin(scheme, authority.host, authority.port or _DEFAULT_PORTS[scheme])


class Guard:
    """Decides which Host and Origin a server accepts.

    With DNS rebinding, a page of `evil.example` reaches this server under the page's own name: Host and Origin agree
    and both are foreign. Only names can be rebound, so such a page never sends a loopback name or an IP address as
    Host. Those hosts are accepted, and the listed ones. An Origin is accepted if it is listed, if it equals an accepted
    Host, or if both are loopback names. A request without Origin does not come from a web page.

    Args:
        allowed_hosts: Names under which clients reach this server besides the loopback names: `"mcp.example.com"` (any
            port), `"mcp.example.com:8443"` (that port), `"*.example.com"` (all names below) or `"*"`. `"*"` disables
            the protection by Host; an Origin is then no longer accepted because it equals Host.
        allowed_origins: Pages of other origins that may call: `"https://app.example.com"`, `"vscode-webview://id"`,
            `"null"` (sandboxed pages and files) or `"*"`.
        ip_hosts: Accept any IP address as Host.

    Raises:
        DefinitionError: An entry can't match anything.
    """

    __slots__ = ("_any_host", "_any_origin", "_hosts", "_ip_hosts", "_origins", "_ports", "_suffixes")

    def __init__(
        self, allowed_hosts: Iterable[str] = (), allowed_origins: Iterable[str] = (), *, ip_hosts: bool = True
    ) -> None:
        self._hosts: set[str] = set(LOOPBACK)
        self._ports: set[tuple[str, int]] = set()
        self._suffixes: tuple[str, ...] = ()
        self._origins: set[WebOrigin | str] = set()
        self._any_host = False
        self._any_origin = False
        self._ip_hosts = ip_hosts
        for entry in _entries("allowed_hosts", allowed_hosts):
            self._allow_host(entry)
        for entry in _entries("allowed_origins", allowed_origins):
            self._allow_origin(entry)

    @classmethod
    def for_bind(
        cls, host: str | None, allowed_hosts: Iterable[str] = (), allowed_origins: Iterable[str] = ()
    ) -> Guard:
        """Make the guard for a server that listens on `host`.

        A loopback bind accepts the loopback names on any port. Any other bind accepts IP addresses as well, and the
        name or address it is bound to.

        Args:
            host: A name, an address, or None for a Unix socket or a mounted app.
            allowed_hosts: See `Guard`.
            allowed_origins: See `Guard`.

        Raises:
            DefinitionError: An entry can't match anything.
        """
        bare = (host or "").strip("[]").lower()
        address = _ip_address(bare)
        guard = cls(allowed_hosts, allowed_origins, ip_hosts=not (bare == "localhost" or _is_loopback(address)))
        if address or parse_authority(bare) is not None:
            guard._hosts.add(address or bare)
        return guard

    def _allow_host(self, entry: str) -> None:
        text = entry.removesuffix(":*")
        if text == "*":
            self._any_host = True
            return
        below = text.startswith("*.")
        if text.count(":") > 1 and not text.startswith("["):
            text = f"[{text}]"
        authority = parse_authority(text[2:] if below else text)
        if authority is None or (below and (authority.port is not None or authority.is_ip)):
            raise DefinitionError(
                f"allowed_hosts: {entry!r} is not a host. "
                "Write 'name', 'name:port', '[IPv6]:port', '*.name' or '*', without a scheme"
            )
        if below:
            self._suffixes += (f".{authority.host}",)
        elif authority.port is None:
            self._hosts.add(authority.host)
        else:
            self._ports.add((authority.host, authority.port))

    def _allow_origin(self, entry: str) -> None:
        if entry == "*":
            self._any_origin = True
            return
        origin = parse_origin(entry)
        scheme, separator, rest = entry.partition("://")
        if origin is not None:
            self._origins.add(origin)
        elif entry == "null" or (
            separator and rest and scheme not in _DEFAULT_PORTS and _SCHEME.fullmatch(scheme) and "/" not in rest
        ):
            self._origins.add(entry)
        else:
            raise DefinitionError(
                f"allowed_origins: {entry!r} is not an origin. "
                "Write 'https://name', 'http://name:port', 'null' or '*', without a path"
            )

    def lists_origin(self, origin: bytes) -> bool:
        """Whether `allowed_origins` names the page of a request: it may read the answers, as CORS has it.

        Args:
            origin: The Origin header as sent.
        """
        if len(origin) > _LONGEST:
            return False
        text = origin.strip(OWS).decode("latin-1")
        return self._any_origin or text in self._origins or parse_origin(text) in self._origins

    def check(self, host: bytes | None, origin: bytes | None) -> Refusal | None:
        """Judge the values of Host and Origin.

        Args:
            host: The Host header as sent, None if absent.
            origin: The Origin header as sent, None if absent.

        Returns:
            None if the request is accepted, 403 for a foreign Origin or Host, 400 for a missing or malformed Host.
        """
        host, origin = (None if value is None else value.strip(OWS) for value in (host, origin))
        if len(host or b"") > _LONGEST or len(origin or b"") > _LONGEST:
            return Refusal(400, f"Host and Origin may have {_LONGEST} characters each")
        return self._judge(
            None if host is None else host.decode("latin-1"), None if origin is None else origin.decode("latin-1")
        )

    def _judge(self, host: str | None, origin: str | None) -> Refusal | None:
        authority = None if host is None else parse_authority(host)
        # Origin first: a foreign one is 403 whatever the Host ; a rebinding page has both foreign.
        if origin is not None and not self._serves_origin(origin, authority):
            return Refusal(403, f"Origin {_quote(origin)} may not call this server. {self._advice(origin, authority)}")
        if authority is None:
            problem = "is missing" if host is None else f"{_quote(host)} is malformed"
            return Refusal(400, f"Host {problem}: it must be a name or address with an optional port")
        if not self._any_host and not self._knows_host(authority):
            return Refusal(
                403,
                f"Host {_quote(str(host))} is not served here. "
                f"If clients reach this server under that name, list it: allowed_hosts=[{_quote(authority.host)}]",
            )
        return None

    def _advice(self, text: str, authority: Authority | None) -> str:
        """Name the option that accepts this Origin. A page of this server needs its name in allowed_hosts."""
        origin = parse_origin(text)
        if origin and authority and not self._any_host and origin.host == authority.host:
            return f"If clients reach this server under that name, list it: allowed_hosts=[{_quote(authority.host)}]"
        return f"If it should, list it: allowed_origins=[{_quote(text)}]"

    def _knows_host(self, authority: Authority) -> bool:
        """Whether no page of another site can send this Host."""
        host, port, is_ip = authority
        if host in self._hosts or (is_ip and self._ip_hosts) or (self._suffixes and host.endswith(self._suffixes)):
            return True
        # Behind a proxy that terminates TLS an absent port may be 80 or 443.
        return any((host, number) in self._ports for number in ((80, 443) if port is None else (port,)))

    def _serves_origin(self, text: str, authority: Authority | None) -> bool:
        if self._any_origin or text in self._origins:
            return True
        origin = parse_origin(text)
        if origin is None:
            return False
        if origin in self._origins:
            return True
        if authority is None or not self._knows_host(authority):
            return False
        if origin.host in LOOPBACK and authority.host in LOOPBACK:
            return True
        return origin.host == authority.host and origin.port == (authority.port or _DEFAULT_PORTS[origin.scheme])


def _entries(option: str, entries: Iterable[str]) -> list[str]:
    if isinstance(entries, str):
        raise DefinitionError(f"{option} is a list: write [{entries!r}]")
    return list(entries)


def _is_loopback(address: str | None) -> bool:
    return address is not None and (address == "::1" or address.startswith("127."))


def _quote(text: str) -> str:
    """Quote text of a caller as short printable ASCII, fit for a log line."""
    return ascii(shorten(text))
