"""How a command reaches a URL: headers, cookies, TLS, and what is chosen about the authorization server."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemel.errors import DefinitionError, StartError
from gemel.protocol.limits import DEFAULT_LIMITS, Limits, change_limits
from gemel.transports.http.client.headers import RESERVED
from gemel.transports.http.client.options import Network

if TYPE_CHECKING:
    import ssl

    from gemel.http1.client.wire import HeaderPairs, Wire, WireResponse

#: Options that need a URL as the target, by their names in the parsed command line.
URL_OPTIONS = (
    *("header", "cookie", "ca", "client_cert", "wire"),
    *("issuer", "accept_issuer", "resource", "assume_pkce", "parameter", "private_networks"),
)
_COOKIE = re.compile(r"(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?P<value>[!-+\--:<-\[\]-~]*|\"[!-+\--:<-\[\]-~]*\")")


def given_option(options: argparse.Namespace, names: Sequence[str]) -> str | None:
    """Return the first of these options that is given, as it is written.

    Args:
        options: The parsed command line.
        names: Names in the parsed command line.
    """
    given = next((name for name in names if getattr(options, name, None)), None)
    return None if given is None else f"--{given.replace('_', '-')}"


# ---------------------------------------------------------------- limits


def parse_limits(words: Sequence[str]) -> dict[str, float]:
    """Parse the values of `--limit`, NAME=NUMBER. Raises StartError.

    Args:
        words: The values.
    """
    limits: dict[str, float] = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            limits[name.strip().replace("-", "_")] = int(text) if text.strip().isdecimal() else float(text)
        except ValueError:
            raise StartError(f"--limit {word} is not NAME=NUMBER") from None
    return limits


def limits_of(options: argparse.Namespace, base: Limits = DEFAULT_LIMITS) -> Limits:
    """Return the limits of a client, with those of `--limit`.

    Args:
        options: The parsed command line.
        base: The others.

    Raises:
        StartError: A value of `--limit` is not NAME=NUMBER.
        DefinitionError: There is no such limit, or it doesn't take the value.
    """
    return change_limits(base, parse_limits(options.limit))


# ---------------------------------------------------------------- HTTP


def http_options(options: argparse.Namespace, configured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a client of a URL that a command line gives.

    Args:
        options: The parsed command line.
        configured: The options of an entry in a configuration; headers of the command line take the place of its.

    Raises:
        StartError: One of them can't be used.
    """
    http = dict(configured)
    own = _headers(options)
    if own:
        replaced = {name.lower() for name in own}
        kept = {name: value for name, value in (http.get("headers") or {}).items() if name.lower() not in replaced}
        http["headers"] = {**kept, **own}
    if options.ca or options.client_cert:
        http["tls"] = _tls(options)
    if options.wire:
        http["wire"] = options.wire
    return http


def network_of(options: argparse.Namespace) -> Network:
    """Return how a login reaches the MCP server and its authorization server. Raises StartError.

    Args:
        options: The parsed command line.
    """
    from gemel.http1.client.network import TlsContext
    from gemel.http1.client.pool import SocketWire

    tls = TlsContext(_tls(options))
    return with_headers(Network(tls, None, lambda: SocketWire(tls=tls)), _headers(options))


def with_headers(network: Network, headers: Mapping[str, str]) -> Network:
    """Return a network whose requests to the MCP server's origin have further headers.

    Args:
        network: How the server is reached.
        headers: The headers. Other origins, such as that of the authorization server, don't get them.
    """
    return network._replace(wire=lambda: _HeaderWire(network.wire, headers)) if headers else network


class _HeaderWire:
    """Adds headers to requests."""

    def __init__(self, make: Callable[[], Wire], headers: Mapping[str, str]) -> None:
        self._wire = make()
        self._headers = headers

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> WireResponse:
        """See Wire.open."""
        own = {name.lower() for name, _ in headers}
        added = [(name, value) for name, value in self._headers.items() if name.lower() not in own]
        return await self._wire.open(method, url, [*headers, *added], body)

    async def close(self) -> None:
        """See Wire.close."""
        await self._wire.close()


def _headers(options: argparse.Namespace) -> dict[str, str]:
    headers = dict(map(parse_header, options.header))
    cookies = list(map(_cookie, options.cookie))
    if cookies:
        name = next((name for name in headers if name.lower() == "cookie"), "Cookie")
        headers[name] = "; ".join([*filter(None, [headers.get(name)]), *cookies])
    return headers


def parse_header(text: str) -> tuple[str, str]:
    """Split NAME:VALUE. Raises StartError, also for a header that the protocol sets.

    Args:
        text: The value of `--header`.
    """
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise StartError(f"--header {text!r} is not a header: write NAME:VALUE")
    if name.strip().lower() in RESERVED:
        raise StartError(f"--header {name.strip()}: the protocol sets this header itself")
    return name.strip(), value.strip()


def _cookie(text: str) -> str:
    if _COOKIE.fullmatch(text) is None:
        name = text.partition("=")[0]
        raise StartError(f"--cookie {name!r} is not a cookie: write NAME=VALUE, without blanks, commas and semicolons")
    return text


def _tls(options: argparse.Namespace) -> ssl.SSLContext | bool:
    if not options.ca and not options.client_cert:
        return True
    from gemel.http1.client.network import make_context

    try:
        context = make_context(options.ca or True)
    except DefinitionError as exc:
        raise StartError(f"--ca {options.ca}: the certificates can't be read: {exc.__cause__}") from exc
    if options.client_cert:
        certificate, key = _split_certificate(options.client_cert)
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except OSError as exc:
            where = certificate if key is None else f"{certificate} and {key}"
            raise StartError(
                f"--client-cert {options.client_cert}: {where} can't be read as PEM with a certificate and its key: {exc}"
            ) from exc
    return context


def _split_certificate(text: str) -> tuple[str, str | None]:
    if Path(text).is_file():
        return text, None
    certificate, _, key = text.partition(",")
    return certificate, key or None


def _no_password() -> str:
    raise StartError("--client-cert: the key is encrypted; give a file with a key that is not")


# ---------------------------------------------------------------- logins


def oauth_options(options: argparse.Namespace, configured: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the options of OAuth about the authorization server that a command line gives.

    Args:
        options: The parsed command line.
        configured: The options of the login of an entry in a configuration; those of the command line take their place.

    Raises:
        StartError: One of them can't be used.
    """
    for name in ("resource", "assume_pkce", "parameter"):
        if getattr(options, name, None) and not options.issuer and "issuer" not in (configured or {}):
            raise StartError(f"--{name.replace('_', '-')} needs --issuer: it is for one authorization server")
    given = {
        "issuer": options.issuer,
        "accept_issuers": options.accept_issuer,
        "private_networks": options.private_networks or None,
        "resource": {"none": False}.get(options.resource, options.resource),
        "assume_pkce": options.assume_pkce or None,
        "authorization_parameters": dict(map(_parameter, options.parameter)),
    }
    return {**(configured or {}), **{name: value for name, value in given.items() if value not in (None, [], {})}}


def _parameter(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise StartError(f"--parameter {text!r} is not NAME=VALUE")
    return name, value
