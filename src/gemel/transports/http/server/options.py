"""The options of an MCP endpoint over HTTP: as an ASGI app (`HttpAppOptions`), and as a process (`HttpOptions`).

Annotations are evaluated here: see `gemel.options`.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias, TypedDict, final

import msgspec

from gemel.http1.asgi import AsgiApp, Scope
from gemel.options import (
    FLAG,
    PATH,
    PORT,
    SECONDS,
    TEXT,
    TEXTS,
    Check,
    Option,
    are_texts,
    function,
    has_methods,
    instance,
    is_number,
    is_whole,
    one_of,
    or_none,
    whole,
)
from gemel.protocol.eras.base import EraName
from gemel.protocol.http.origin import Guard
from gemel.protocol.http.request import Headers, Principal, Refusal
from gemel.protocol.limits import Limits
from gemel.protocol.records import RefusedMessage

if TYPE_CHECKING:
    import ssl

#: Tells who is calling: a name, a Principal with scopes, None for an anonymous caller, or the Refusal to send (401, 403).
Caller: TypeAlias = str | Principal | Refusal | None
Authenticate: TypeAlias = Callable[[Scope, Headers], Caller | Awaitable[Caller]]


class Auth(Protocol):
    """Authorizes the callers of a server over HTTP: what `Server(auth=…)` takes. `gemel.auth` has ready ones.

    A method `async def close(self)` is awaited when the server stops, which may serve again later.

    Specification: basic/authorization.
    """

    def authenticate(self, scope: Scope, headers: Headers, /) -> Caller | Awaitable[Caller]:
        """Tell who is calling, for each request.

        Args:
            scope: The ASGI scope of the request.
            headers: Its headers.

        Returns:
            A Principal, at once if waiting isn't needed, or the Refusal to send.
        """
        ...

    def routes(self, endpoint_path: str, /) -> Mapping[str, AsgiApp]:
        """Return ASGI apps by path that are served beside an endpoint and without authorization, such as metadata.

        Args:
            endpoint_path: The path of the endpoint.
        """
        ...

    def challenge(
        self, scope: Scope, *, error: str | None = None, description: str | None = None, scopes: Collection[str] = ()
    ) -> str:
        """Write the `WWW-Authenticate` of a response that refuses a request.

        Args:
            scope: The ASGI scope of the request.
            error: An error code of RFC 6750 §3.1, such as "insufficient_scope".
            description: What is wrong, for developers.
            scopes: The scopes that the operation needs besides those that every request needs.
        """
        ...


#: A single string passes here and is refused later by an error that shows the list.
_NAMES = TEXTS._replace(test=lambda value: isinstance(value, str) or TEXTS.test(value))


def _are_networks(value: Any) -> bool:
    from ipaddress import ip_network

    try:
        return are_texts(value) and all(text == "unix" or ip_network(text, strict=False) for text in value)
    except ValueError:
        return False


_IS_GUARD = has_methods(check=2, plain=True)


class HttpEndpointOptions(TypedDict, total=False):
    """The options of an endpoint, however it is served. Times in seconds, sizes in bytes."""

    sse_path: Annotated[
        str | None,
        Option(
            'Where clients of the first revision find its transport, HTTP+SSE (deprecated), like "/sse".',
            None,
            or_none(TEXT._replace(advice='write a path like "/sse"')),
        ),
    ]
    sessions: Annotated[
        bool,
        Option(
            "Whether handshake clients get sessions. Without, each of their POSTs stands alone, and the server can send "
            "them no requests.",
            True,
            FLAG,
        ),
    ]
    allowed_hosts: Annotated[
        Sequence[str], Option('Further Host headers to accept, such as "mcp.example.com".', (), _NAMES)
    ]
    allowed_origins: Annotated[
        Sequence[str],
        Option(
            'Web pages of other sites that may call and read the answers (CORS): "https://app.example.com".', (), _NAMES
        ),
    ]
    guard: Annotated[
        Guard | None,
        Option(
            "A check of Host and Origin in place of the one that `bind`, `allowed_hosts` and `allowed_origins` make.",
            None,
            Check(lambda value: value is None or _IS_GUARD(value), "write guard=Guard.for_bind(…), or None"),
        ),
    ]
    authenticate: Annotated[
        Authenticate | None,
        Option(
            "Who is calling: `authenticate(scope, headers)` returns a `Principal`, a name, None or a `Refusal`.",
            None,
            or_none(function("`async def authenticate(scope, headers)`, or a quick `def`", 2)),
        ),
    ]
    routes: Annotated[
        Mapping[str, AsgiApp] | None,
        Option(
            "ASGI apps beside the endpoint, by path: `/metrics` that path alone, `/static/` everything below. They are "
            "not authenticated.",
            None,
            or_none(instance(Mapping, 'routes={"/metrics": app} with an ASGI app')),
        ),
    ]
    server_card: Annotated[
        str | None,
        Option(
            "Answer `<path>/server-card` with the server's card (draft), under this name in reverse DNS form, such as "
            '"com.example/weather". Everybody may read it.',
            None,
            or_none(TEXT._replace(advice='write a name like "com.example/weather"')),
        ),
    ]
    headers: Annotated[
        int, Option("Maximum number of header lines of one request; a repeated header counts each time.", 100, whole(1))
    ]
    header_bytes: Annotated[int, Option("Total bytes of the headers of one request.", 64 * 1024, whole(1))]
    body_wait: Annotated[
        float,
        Option(
            "How long a client may take to send a body.",
            30.0,
            Check(lambda value: is_number(value) and value > 0, "use seconds, more than 0"),
        ),
    ]
    requests: Annotated[
        int,
        Option(
            "Requests in flight on all connections together; the next one gets 503, except for a few pings.",
            20_000,
            whole(1),
        ),
    ]
    retry: Annotated[
        int,
        Option(
            "What handshake clients are told to wait before they resume a stream, in milliseconds.",
            1000,
            Check(lambda value: is_whole(value, 0), "use milliseconds, a whole number"),
        ),
    ]


class HttpAppOptions(HttpEndpointOptions, total=False):
    """The options of `server.http_app()`, besides `path`."""

    bind: Annotated[
        str | None,
        Option(
            "The address that the server listens on, as far as it is known: it decides which Host headers are accepted.",
            None,
            or_none(TEXT._replace(advice="write the address that the server listens on")),
        ),
    ]


class HttpOptions(HttpEndpointOptions, total=False):
    """The options of `server.run("http")`."""

    path: Annotated[
        str,
        Option(
            "Path of the endpoint.",
            "/mcp",
            Check(lambda value: isinstance(value, str) and value.startswith("/"), 'write a path like "/mcp"'),
        ),
    ]
    host: Annotated[str, Option("Address to listen on.", "127.0.0.1", TEXT)]
    port: Annotated[int, Option("Port to listen on; 0 takes a free one.", 8000, PORT)]
    workers: Annotated[int, Option("Processes that serve together.", 1, whole(1))]
    worker_timeout: Annotated[
        float,
        Option(
            "With several workers: how long the event loop of one may be blocked until it is replaced, in seconds; 0 for no "
            "limit.",
            30.0,
            SECONDS,
        ),
    ]
    uds: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "Path of a Unix socket to listen on instead; the umask decides who may connect. On Windows the name of a pipe, "
            "`\\\\.\\pipe\\NAME`, to which only its owner may write.",
            None,
            or_none(PATH),
        ),
    ]
    tls: Annotated[
        "ssl.SSLContext | None",
        Option(
            "Certificate and settings for HTTPS.",
            None,
            Check(lambda value: value is None or hasattr(value, "wrap_bio"), "write an ssl.SSLContext, or None"),
        ),
    ]
    engine: Annotated[
        Literal["gemel", "uvicorn"],
        Option(
            'The HTTP server: the built-in one, or "uvicorn" (extra `uvicorn`).', "gemel", one_of("gemel", "uvicorn")
        ),
    ]
    access_log: Annotated[
        bool,
        Option("Log each HTTP request to the logger `gemel.access`, by default on standard error.", False, FLAG),
    ]
    trusted_proxies: Annotated[
        Sequence[str],
        Option(
            "Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are used; `unix` for a Unix "
            "socket.",
            (),
            Check(_are_networks, 'write a list of addresses and networks, such as ["10.0.0.0/8"]'),
        ),
    ]
    announce: Annotated[
        Callable[[str], None] | None,
        Option(
            "Called with the URL when the server is ready; by default the URL is printed on standard error.",
            None,
            or_none(function("`def announce(url)`", 1, plain=True)),
        ),
    ]


#: Names that are options of the server, with the advice where.
FROM_SERVER = {"eras": "use Server(eras=…)", "limits": "use Server(limits=…)"}
Hook: TypeAlias = Callable[[], Awaitable[None]]


@final
class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved options of an endpoint, with what its server adds. Defaults and meanings are declared above."""

    path: str
    limits: Limits
    eras: tuple[EraName, ...]
    sse_path: str | None
    sessions: bool
    bind: str | None
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    guard: Guard | None
    authenticate: Authenticate | None
    auth: Auth | None
    routes: Mapping[str, AsgiApp] | None
    server_card: str | None
    headers: int
    header_bytes: int
    body_wait: float
    requests: int
    retry: int
    #: Called with each message that is refused before any middleware sees it.
    on_refused: Callable[[RefusedMessage], None] | None = None
