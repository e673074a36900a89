"""The options of a server: how it is made (`ServerOptions`) and how it runs without HTTP (`StdioOptions`, `SocketOptions`).

Those of HTTP are in `transports/http/server/options.py`. Annotations are evaluated here: see `gemel.options`.
"""

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated, Any, Generic, TypedDict

import msgspec

from gemel.backends.base import Backend
from gemel.errors import DefinitionError, shorten
from gemel.options import (
    FLAG,
    METHOD_NAMES,
    PATH,
    PORT,
    SECONDS,
    TEXT,
    TEXTS,
    Check,
    Option,
    function,
    has_methods,
    instance,
    is_function,
    is_whole,
    or_none,
    several,
    whole,
)
from gemel.protocol.eras.base import EraName
from gemel.protocol.http.request import PRINCIPAL, Principal
from gemel.protocol.limits import DEFAULT_LIMITS, Limits, change_limits
from gemel.schema.base import NO_VERSION, Icon, Implementation
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.notifications import SEVERITY, LoggingLevel
from gemel.server.context import StateT
from gemel.server.elicitation.elsewhere import AskElsewhere
from gemel.server.extensions import BaseExtension
from gemel.server.features.caching import CacheHint
from gemel.server.features.error_details import ERROR_DETAILS, ErrorDetails
from gemel.server.features.options import is_uri, listed
from gemel.server.features.subscriptions import Authorize
from gemel.server.features.visibility import ON_DUPLICATE, OnDuplicate
from gemel.server.lifespan import ConnectionLifespan
from gemel.server.middleware.chain import Middleware
from gemel.transports.http.server.options import Auth


def _lifespan(form: str) -> Check:
    """A function that returns an async context manager: one that yields or is awaited lacks its decorator."""

    def fits(value: object) -> bool:
        wrong = (inspect.isasyncgenfunction, inspect.isgeneratorfunction, inspect.iscoroutinefunction)
        return value is None or (is_function(value, 1) and not any(is_wrong(value) for is_wrong in wrong))

    return Check(fits, f"write @asynccontextmanager above `async def {form}`, and `yield` in it, or None")


_IS_ASK = has_methods(elicitation=3, lifespan=1, routes=3, use_backend=1)
_IS_AUTH = has_methods(authenticate=2, routes=1, challenge=1)
LIFESPAN = _lifespan("lifespan(server)")


class ServerOptions(TypedDict, Generic[StateT], total=False):
    """The options of `Server`, and of servers made from something else. Only `lifespan` is not among them."""

    version: Annotated[str, Option("The server's version, as clients see it.", NO_VERSION, TEXT)]
    title: Annotated[str | None, Option("A name for people.", None, or_none(TEXT))]
    description: Annotated[str | None, Option("What the server is for, in a sentence.", None, or_none(TEXT))]
    website_url: Annotated[str | None, Option("Where people read about it.", None, or_none(TEXT))]
    icons: Annotated[Sequence[Icon | str] | None, Option("Icons, or their URLs, for a client to show.")]
    instructions: Annotated[
        str | None, Option("How a model should use this server; clients may add it to its prompt.", None, or_none(TEXT))
    ]
    eras: Annotated[
        Sequence[EraName] | EraName,
        Option("Protocol eras to speak: `2025` (handshake), `2026` (stateless).", ("2025", "2026")),
    ]
    connection_lifespan: Annotated[
        ConnectionLifespan | None,
        Option(
            "`async with connection_lifespan(ctx) as state`: entered before a client's first request that runs one of your "
            "functions, left when the client has gone, in each process that serves its session; in the stateless era around "
            "each such request. Functions find the state at `ctx.connection_state`.",
            None,
            _lifespan("connected(ctx)"),
        ),
    ]
    middleware: Annotated[
        Sequence[Middleware[StateT]],
        Option(
            "`async def middleware(ctx, call_next)` around every request and notification, outermost first.",
            (),
            several(lambda one: True, "middleware=[…]"),
        ),
    ]
    ask: Annotated[
        AskElsewhere | None,
        Option(
            "How the users of clients without forms are asked: `AskByPage(…)` of `gemel.ask_by_page`. None asks at the client "
            "only.",
            None,
            or_none(
                Check(
                    lambda value: _IS_ASK(value) and not isinstance(value, type),
                    'write ask=AskByPage(url="https://…") with gemel.ask_by_page.AskByPage',
                    secret=True,
                )
            ),
        ),
    ]
    extensions: Annotated[
        Sequence[BaseExtension[Any] | type[BaseExtension[Any]]],
        Option("Protocol extensions, as objects or classes.", (), several(lambda one: True, "extensions=[…]")),
    ]
    limits: Annotated[
        Limits,
        Option(
            "Bounds on what peers can make the server hold or wait for.",
            DEFAULT_LIMITS,
            instance(Limits, "limits=Limits(…)"),
        ),
    ]
    log_level: Annotated[
        LoggingLevel | None,
        Option(
            "Least severe log message sent to a handshake client that set no level; None sends none.",
            "info",
            Check(
                lambda value: value is None or (isinstance(value, str) and value in SEVERITY),
                f"use one of {', '.join(SEVERITY)}, or None",
            ),
        ),
    ]
    page_size: Annotated[
        int | None,
        Option(
            "Items on one page of a list; None sends whole lists.",
            None,
            Check(lambda value: value is None or is_whole(value, 1), "use 1 or more, or None for whole lists"),
        ),
    ]
    coerce: Annotated[
        bool,
        Option(
            'Whether tools accept strings that hold JSON of the expected type: `"3"` for an int, `"[1]"` for a list. A '
            "tool's own `coerce=` comes first.",
            False,
            FLAG,
        ),
    ]
    list_null: Annotated[
        bool,
        Option(
            "Whether tools list null beside the type of an optional argument: `anyOf` of integer and null for `int | None = "
            "None`, in place of integer. It is accepted either way. A tool's own `list_null=` comes first.",
            False,
            FLAG,
        ),
    ]
    on_duplicate: Annotated[
        OnDuplicate,
        Option(
            'What happens to a tool, prompt or resource whose name or URI is taken: `"error"` (DefinitionError), `"replace"` '
            '(the second one counts) or `"keep"` (the first one does).',
            "error",
            ON_DUPLICATE,
        ),
    ]
    error_details: Annotated[
        ErrorDetails,
        Option(
            "Whether the text of an unexpected exception of a tool reaches the model: `True`, `False`, a list of exception "
            "types, or `def details(error) -> str | None`. Such a text may contain secrets; the text of a "
            "`ToolError` is always sent.",
            False,
            ERROR_DETAILS,
        ),
    ]
    structured_text: Annotated[
        bool,
        Option(
            "Whether tools that return `str` list an output schema, and send the text as structured content, too.",
            False,
            FLAG,
        ),
    ]
    omit_repeated_text: Annotated[
        bool,
        Option(
            "Whether results of tools leave out the text block that repeats structured content, if that is an object. For "
            "hosts that show structured content to the model: others then show nothing.",
            False,
            FLAG,
        ),
    ]
    state_keys: Annotated[
        Sequence[bytes],
        Option(
            "Secrets of 32 bytes, the current one first, that encrypt request state: the same in every process that may "
            "continue a call of another. By default they are in the `backend` that the processes share, else a random one.",
            (),
            several(
                lambda one: isinstance(one, bytes), "state_keys=[…] with secrets of 32 bytes: secrets.token_bytes(32)"
            )._replace(secret=True),
        ),
    ]
    state_once: Annotated[
        bool,
        Option(
            "Whether each request state is accepted only once, by all processes that share a `backend`.",
            False,
            FLAG,
        ),
    ]
    backend: Annotated[
        Backend | str | None,
        Option(
            "What the processes of the server share: it carries changes and keeps values. Without one, each process has its own.",
            None,
            or_none(
                Check(
                    lambda value: isinstance(value, str) or hasattr(value, "publish"),
                    'use "sqlite:///FILE", or an object with the methods of gemel.backends.Backend: '
                    "`def publish(self, event)`, `def subscribe(self, listener)`, `async def get(self, key)`, …",
                )
            ),
        ),
    ]
    authorize_subscription: Annotated[
        Authorize | None,
        Option(
            "`async def may_watch(ctx, uri) -> bool`: who may subscribe to a resource; asked again for each change that a "
            "subscription covers. By default everyone may who sees the resource.",
            None,
            or_none(function("`async def may_watch(ctx, uri) -> bool`", 2)),
        ),
    ]
    scope_hierarchy: Annotated[
        Mapping[str, Collection[str]],
        Option(
            'Which scopes include others: with `{"notes.write": ["notes.read"]}` whoever may write may read.',
            {},
            instance(Mapping, 'scope_hierarchy={"notes.write": ["notes.read"]}'),
        ),
    ]
    auth: Annotated[
        Auth | None,
        Option(
            "Who may call over HTTP: `JWTAuth(issuer=…, audience=…)` or another of `gemel.auth`.",
            None,
            or_none(
                Check(
                    lambda value: _IS_AUTH(value) and not isinstance(value, type),
                    "write auth=JWTAuth(issuer=…, audience=…), or another object of gemel.auth that protects a server; a "
                    "login elsewhere is auth= of a Client",
                    secret=True,
                )
            ),
        ),
    ]
    cache: Annotated[
        Mapping[str, CacheHint] | None,
        Option(
            'How long clients may keep results of a method: `{"tools/list": CacheHint(60)}`.',
            None,
            or_none(
                Check(
                    lambda value: (
                        isinstance(value, Mapping) and all(isinstance(one, CacheHint) for one in value.values())
                    ),
                    'write cache={"tools/list": CacheHint(60)}',
                )
            ),
        ),
    ]
    resource_bytes: Annotated[
        int, Option("Largest file, and largest resource given in chunks, in bytes.", 16 * 1024 * 1024, whole(1))
    ]


_limit_overrides: ContextVar[Mapping[str, float]] = ContextVar("gemel_limit_overrides")


def override_limits(limits: Mapping[str, float]) -> None:
    """Set limits of all servers that are made after this, in place of those that they are given: for whoever operates them.

    Args:
        limits: values by the names in `Limits`.

    Raises:
        DefinitionError: in one line, for an unknown name or a value that the limit doesn't take.
    """
    change_limits(DEFAULT_LIMITS, limits)
    _limit_overrides.set(dict(limits))


def effective_limits(given: Limits) -> Limits:
    """Return the limits of a server, with those that `override_limits` set."""
    overrides = _limit_overrides.get({})
    return msgspec.structs.replace(given, **overrides) if overrides else given


class StdioOptions(TypedDict, total=False):
    """The options of `server.run("stdio")`."""

    principal: Annotated[
        Principal | str | None,
        Option(
            "Who the client is: `Principal(name, scopes=…)`, or a name without scopes. By default whoever started the "
            "process, for whom all `scopes=` are fulfilled.",
            None,
            PRINCIPAL,
        ),
    ]


class SocketOptions(TypedDict, total=False):
    """The options of `server.run("socket")`: a Unix socket or a named pipe (`path`), or TCP (`port`)."""

    path: Annotated[
        str | os.PathLike[str] | None,
        Option("Path of a Unix socket; on Windows the name of a pipe, `\\\\.\\pipe\\NAME`.", None, or_none(PATH)),
    ]
    host: Annotated[str, Option("Address to listen on with TCP.", "127.0.0.1", TEXT)]
    port: Annotated[int | None, Option("TCP port; 0 takes a free one.", None, or_none(PORT))]
    announce: Annotated[
        Callable[[str], None] | None,
        Option(
            "Called with the address when the server listens, as a `Client` takes it: `tcp://127.0.0.1:7000`, `unix:PATH`; "
            "by default the address is printed on standard error.",
            None,
            or_none(function("`def announce(address)`", 1, plain=True)),
        ),
    ]
    principal: Annotated[
        Principal | str | None,
        Option(
            "Who all clients are: `Principal(name, scopes=…)`, or a name without scopes. By default nobody, without scopes.",
            None,
            PRINCIPAL,
        ),
    ]


class _UpstreamOptions(ServerOptions, total=False):
    """What servers that forward to others have in common."""

    single_user: Annotated[
        bool,
        Option(
            "Whether all callers are the same person: callers without a session share one with the other server, and its "
            "requests that name no call may reach any of them.",
            False,
            FLAG,
        ),
    ]
    shared: Annotated[
        bool,
        Option(
            "Whether all callers share one session with the other server, and with it all that the server keeps for a "
            "session. By default each caller has one.",
            False,
            FLAG,
        ),
    ]
    strict: Annotated[
        bool,
        Option(
            "Whether it fails to start if a server behind it can't be reached, and so does a server that it is mounted in. By "
            "default it starts without, and connecting is tried again in the background and on each use.",
            False,
            FLAG,
        ),
    ]


class ProxyOptions(_UpstreamOptions, total=False):
    """The options of `Server.from_client`, besides those of a server."""

    name: Annotated[str | None, Option("The server's name; that of the other server by default.", None, or_none(TEXT))]
    prefix: Annotated[
        str | None, Option("Put in front of the names of tools and prompts, and of URIs, as `Server.mount` does.")
    ]
    headers: Annotated[
        Sequence[str], Option("Names of HTTP headers of a caller that are passed on to a server over HTTP.", (), TEXTS)
    ]
    methods: Annotated[Sequence[str], Option("Further methods that are passed on as they are.", (), METHOD_NAMES)]
    declare: Annotated[
        ClientCapabilities | None,
        Option("The client capabilities declared to a handshake server; by default all that can be passed on."),
    ]
    parked: Annotated[
        int,
        Option(
            "Calls of stateless clients that are kept running at a handshake server while their client is away.",
            1000,
            whole(0),
        ),
    ]


class GatewayOptions(_UpstreamOptions, total=False):
    """The options of `Server.from_config`, besides those of a server."""

    name: Annotated[str, Option("The server's name.", "gateway", TEXT)]


class ApiOptions(ServerOptions, total=False):
    """The options of `Server.from_openapi` and `gemel.openapi.server_from`, besides those of a server."""

    name: Annotated[str | None, Option("The server's name; the document's title by default.", None, or_none(TEXT))]
    base_url: Annotated[
        str | None,
        Option(
            "Where the API is, if not where the document says. The path of a relative server of the document is added.",
            None,
            or_none(TEXT),
        ),
    ]
    headers: Annotated[
        Mapping[str, str] | Callable[[], Mapping[str, str]] | None,
        Option(
            "Headers of every request, such as credentials; a function is called for each request.",
            None,
            or_none(
                Check(
                    lambda value: isinstance(value, Mapping) or is_function(value, 0, plain=True),
                    'write headers={"X-Name": "value"}, or a plain function without arguments',
                    secret=True,
                )
            ),
        ),
    ]
    operations: Annotated[
        Callable[[Any], bool],
        Option(
            'Which operations become tools: `lambda one: one.method == "GET" and "pets" in one.tags`.',
            lambda operation: True,
            function("`lambda operation: …`", 1, plain=True),
        ),
    ]
    validate_output: Annotated[
        bool,
        Option(
            "Whether a response that does not match its description is a tool error. If not, it is passed on with a log "
            "line, and tools list no output schema.",
            True,
            FLAG,
        ),
    ]
    timeout: Annotated[float, Option("Seconds that one request may take.", 30.0, SECONDS)]
    reply_bytes: Annotated[int, Option("Largest answer, in bytes.", 4 * 1024 * 1024, whole(1))]


def check_identity(info: Implementation) -> None:
    """Check what a server says of itself. Raises DefinitionError for a name, text or URL that it can't have."""
    name: Any = info.name
    if not isinstance(name, str) or not name:
        raise DefinitionError(f'A server needs a name: write Server("weather"), not Server({name!r})')
    listed(info, f"Server({name!r})")
    if info.website_url is not None and not is_uri(info.website_url):
        raise DefinitionError(f"website_url={shorten(repr(info.website_url))} is not an address: write https://…")
