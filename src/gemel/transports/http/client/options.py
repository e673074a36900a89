"""The options of a client of a URL. Annotations are evaluated here: see `gemel.options`."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, runtime_checkable

from gemel.errors import HttpStatus
from gemel.http1.client.wire import HeaderPairs
from gemel.options import PATH, TEXT, Check, Option, is_function, or_none

if TYPE_CHECKING:
    import ssl

    from gemel.http1.client.network import TlsContext
    from gemel.http1.client.wire import Wire

#: The user's headers: fixed, or asked for before each request.
UserHeaders: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
#: Gives the value of the Authorization header before each request; None sends none.
AuthValue: TypeAlias = Callable[[], str | Awaitable[str | None] | None]


@runtime_checkable
class Credentials(Protocol):
    """Authorization that can react to a refusal, such as an OAuth flow. It is shared by all requests of a transport.

    With an attribute `identity` it says who the caller is as a text that stays the same while tokens are renewed; without it,
    other headers count as another caller. Nothing is taken from a cache for another caller. While an attribute `asks_person` is
    true, the time limits of requests that wait for the credentials stand still: a person is logging in. Without the attribute they
    stand still for at most `limits.input_wait`. A method
    `def answered(self, url, headers)` is called with the headers of each response that is not a refusal, by lower-case name. A
    method `async def close(self)` is awaited when a transport ends that used them; others may go on using them.
    An attribute `deviations` holds what is to be among `client.warnings`, as `Deviation` objects.
    """

    async def headers(self, method: str, url: str, /) -> HeaderPairs:
        """Return the headers that authorize the next request.

        Args:
            method: The HTTP method.
            url: The URL.

        Raises:
            CallError: There are none; it ends the request.
        """
        ...

    async def refused(self, refusal: HttpStatus, sent: HeaderPairs, /) -> bool:
        """React to 401 or 403. Many requests may be refused at once; those whose `sent` is outdated need only be repeated.

        Args:
            refusal: The response; its headers have the challenges.
            sent: What `headers` returned for the request.

        Returns:
            Whether there are new credentials, so that the request is to be repeated.

        Raises:
            CallError: It ends the request in place of the refusal.
        """
        ...


class Network(NamedTuple):
    """How a transport reaches its server, for credentials that make requests of their own."""

    tls: "TlsContext"
    proxy: str | None
    #: Makes a further wire to the server.
    wire: "Callable[[], Wire]"


@runtime_checkable
class AuthScheme(Protocol):
    """A way to authorize requests, such as `gemel.auth.OAuth`, which makes the credentials of each transport."""

    def bind(self, url: str, network: Network, /) -> Credentials:
        """Return the credentials for one server.

        Args:
            url: The URL of the server.
            network: How it is reached.
        """
        ...


class RequestHeaderOptions(TypedDict, total=False):
    """What is added to the requests of a client over HTTP."""

    headers: Annotated[
        UserHeaders | None,
        Option(
            "HTTP headers of every request, or a function (sync or async) that returns them.",
            None,
            Check(
                lambda value: value is None or is_function(value, 0) or isinstance(value, Mapping),
                'write headers={"X-Name": "value"}, or a function without arguments',
                secret=True,
            ),
        ),
    ]
    auth: Annotated[
        AuthValue | AuthScheme | Credentials | Literal["oauth"] | None,
        Option(
            'A function (sync or async) that returns the value of the Authorization header; "oauth" to log in when the server '
            "asks for it; or an object that authorizes requests, such as `gemel.auth.OAuth`.",
            None,
            or_none(
                Check(
                    lambda value: (
                        value == "oauth" or isinstance(value, Credentials | AuthScheme) or is_function(value, 0)
                    ),
                    'write "oauth", or a function that gives the value of the Authorization header, `lambda: "Bearer …"`',
                    secret=True,
                )
            ),
        ),
    ]


class AsgiOptions(RequestHeaderOptions, total=False):
    """The options of a client of an ASGI app in this process."""

    url: Annotated[
        str,
        Option(
            "The URL that requests to an ASGI app have: with the path of the endpoint, and the host and scheme that it expects.",
            "http://localhost/mcp",
            TEXT._replace(advice='write the URL of the endpoint, "http://localhost/mcp"'),
        ),
    ]


class HttpClientOptions(RequestHeaderOptions, total=False):
    """The options of a client of a URL."""

    tls: Annotated[
        "ssl.SSLContext | str | bool",
        Option(
            "TLS settings: a context, the path of a file with further authorities, or False to verify nothing.",
            True,
            Check(
                lambda value: isinstance(value, bool | str) or hasattr(value, "wrap_bio"),
                "use an ssl.SSLContext, the path of a file with authorities, True or False",
            ),
        ),
    ]
    proxy: Annotated[
        str | None,
        Option(
            "Address of an HTTP proxy; by default that of the environment (HTTPS_PROXY, NO_PROXY, …).",
            None,
            or_none(TEXT._replace(advice='write the address of a proxy, "http://host:port"')),
        ),
    ]
    uds: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "Path of a Unix socket to connect to in place of the host of the URL; on Windows the name of a pipe, "
            "`\\\\.\\pipe\\NAME`.",
            None,
            or_none(PATH),
        ),
    ]
    wire: Annotated[
        Callable[[], "Wire"] | Literal["httpx2"] | None,
        Option(
            'The HTTP client: "httpx2" for HTTP/2, SOCKS and brotli (extra `httpx2`), or a function that makes a Wire.',
            None,
            Check(
                lambda value: value is None or value == "httpx2" or is_function(value, 0, plain=True),
                'write "httpx2" or a function that makes a Wire, or None',
            ),
        ),
    ]
