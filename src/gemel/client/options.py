"""The options of a client, a client pool and a client group.

Those of single requests are in `call_options.py`. Annotations are evaluated here: see `gemel.options`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from gemel.channel import Transport
from gemel.client.cache import Store
from gemel.client.call_options import OnProgress
from gemel.client.callbacks import OnChange, OnElicit, OnElicitUrl, OnLog, OnNotification, OnRoots, OnSample
from gemel.client.extensions import ClientExtension
from gemel.client.middleware import ClientMiddleware, Drift, Lock, OnDrift
from gemel.client.negotiation import Discovery
from gemel.client.targets import TransportOptions
from gemel.options import (
    FLAG,
    PATH,
    SECONDS,
    Check,
    Option,
    function,
    has_methods,
    instance,
    is_function,
    one_of,
    or_none,
    several,
    whole,
)
from gemel.protocol.eras.base import EraName
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.schema.base import Implementation
from gemel.schema.notifications import SEVERITY, LoggingLevel
from gemel.schema.roots import Root

_LIST_OF_ROOTS = several(lambda one: isinstance(one, Root | str | Path), 'on_roots=["/home/me/project"]')
_IS_STORE = has_methods(get=1, put=2, drop=1, plain=True)


def _roots(form: str, arguments: int) -> Check:
    """Roots, or a function that takes so many arguments."""
    return or_none(
        Check(
            lambda value: is_function(value, arguments) or _LIST_OF_ROOTS.test(value),
            f"{_LIST_OF_ROOTS.advice}, or a function that gives it: {form}",
        )
    )


def _callback(form: str) -> Check:
    return or_none(function(f"`{form}`", form.count(",") + 1))


class _CommonOptions(TransportOptions, total=False):
    """What clients, pools and groups have in common: all but callbacks."""

    era: Annotated[
        EraName | Literal["auto"],
        Option(
            'The protocol generation: "2025" (handshake), "2026" (stateless), or "auto" to find it out.',
            "auto",
            one_of("auto", "2025", "2026"),
        ),
    ]
    info: Annotated[
        Implementation | None,
        Option(
            "The name and version that servers see.",
            None,
            or_none(instance(Implementation, 'info=Implementation(name="mine", version="1")')),
        ),
    ]
    limits: Annotated[
        Limits,
        Option("Time limits, sizes and numbers; see `Limits`.", DEFAULT_LIMITS, instance(Limits, "limits=Limits(…)")),
    ]
    sampling_tools: Annotated[bool, Option("Whether `on_sample` supports tools.", False, FLAG)]
    log_level: Annotated[
        LoggingLevel | None,
        Option(
            'The lowest level of log messages; "info" by default if there is `on_log`.',
            None,
            or_none(one_of(*SEVERITY)),
        ),
    ]
    middleware: Annotated[
        Sequence[ClientMiddleware],
        Option(
            "`async def middleware(ctx, call_next)`, around what is sent and received; the first one is outermost.",
            (),
            several(lambda one: True, "middleware=[…]"),
        ),
    ]
    extensions: Annotated[
        Sequence[ClientExtension | type[ClientExtension]],
        Option("Protocol extensions, as objects or classes.", (), several(lambda one: True, "extensions=[…]")),
    ]
    cache: Annotated[
        Store | None,
        Option(
            "Where results are kept that the server allows to be cached; memory by default.",
            None,
            Check(
                lambda value: value is None or _IS_STORE(value),
                "use an object with `def get(self, key)`, `def put(self, key, entry)` and `def drop(self, concerns)`, or None",
            ),
        ),
    ]
    reconnect: Annotated[bool, Option("Whether a lost connection is opened again for the next request.", True, FLAG)]
    check_results: Annotated[
        bool, Option("Whether structured content is checked against the output schema of a listed tool.", True, FLAG)
    ]
    lock: Annotated[
        Lock | None,
        Option(
            "A lock file (`gemel lock`) or `Contract` that the server must match.",
            None,
            or_none(
                Check(
                    lambda value: PATH.test(value) or hasattr(value, "seen_in"),
                    'write the path of a lock, "gemel.lock"',
                )
            ),
        ),
    ]
    drift: Annotated[
        Drift,
        Option(
            'Whether differences from `lock` are refused ("refuse") or logged ("warn").',
            "refuse",
            one_of("refuse", "warn"),
        ),
    ]


class ClientOptions(_CommonOptions, total=False):
    """The options of `Client`. Every callback may be sync or async."""

    discovery: Annotated[
        Discovery | None,
        Option(
            "The `discovery` of an earlier client, to connect without a round trip.",
            None,
            or_none(instance(Discovery, "discovery=client.discovery, of an earlier connection")),
        ),
    ]
    wrap: Annotated[
        Callable[[Transport], Transport] | None,
        Option(
            "Replaces the transport, to observe it or to record its messages: `wrap(transport)` returns a transport.",
            None,
            or_none(function("`def wrap(transport)`", 1, plain=True)),
        ),
    ]
    on_elicit: Annotated[
        OnElicit | None,
        Option(
            "Fills in forms: `on_elicit(params)` returns a mapping to accept, or None to decline.",
            None,
            _callback("async def fill_in(form)"),
        ),
    ]
    on_elicit_url: Annotated[
        OnElicitUrl | None,
        Option(
            "Opens pages: `on_elicit_url(params)` returns whether the user agreed.",
            None,
            _callback("async def open_page(page)"),
        ),
    ]
    on_sample: Annotated[
        OnSample | None,
        Option(
            "Asks a model: `on_sample(params)` returns a `CreateMessageResult` or a string.",
            None,
            _callback("async def ask_model(request)"),
        ),
    ]
    on_roots: Annotated[
        OnRoots | None,
        Option(
            "The folders that servers may know, or a function that returns them.",
            None,
            _roots("`async def roots()`", 0),
        ),
    ]
    on_log: Annotated[
        OnLog | None,
        Option("Called with each log message of the server.", None, _callback("def log(params)")),
    ]
    on_change: Annotated[
        OnChange | None,
        Option(
            "Called with each `Changed` or `ChangesLost`. A stateless server sends changes only while a `listen` is open.",
            None,
            _callback("def changed(change)"),
        ),
    ]
    on_notification: Annotated[
        OnNotification | None,
        Option(
            "Called with the method and params of other notifications.",
            None,
            _callback("def notified(method, params)"),
        ),
    ]
    on_progress: Annotated[
        OnProgress | None,
        Option(
            "Called with the progress of requests that have no `on_progress` of their own.",
            None,
            _callback("def report(progress)"),
        ),
    ]
    on_drift: Annotated[
        OnDrift | None,
        Option("Called with the differences from `lock`.", None, _callback("def differs(differences)")),
    ]


#: The options that are functions, called by the client.
CALLBACKS = tuple(name for name in ClientOptions.__annotations__ if name.startswith("on_"))
#: Those that get the name of the server in a group.
NAMED = (*CALLBACKS, "wrap")


class ClientPoolOptions(ClientOptions, total=False):
    """The options of `ClientPool`, besides its size."""

    idle: Annotated[float, Option("Seconds after which an unused client is closed.", 60.0, SECONDS)]
    check_after: Annotated[
        float, Option("Seconds of disuse after which a client is pinged before it is handed out.", 10.0, SECONDS)
    ]
    wait: Annotated[float, Option("Seconds that a caller waits for a free client.", 30.0, SECONDS)]
    queue: Annotated[int, Option("Callers that may wait; more fail with `Overloaded`.", 1000, whole(0))]


class ClientGroupOptions(_CommonOptions, total=False):
    """The options of `ClientGroup`. Each callback gets the name of the server as its last argument."""

    concurrency: Annotated[
        int,
        Option(
            "Requests to one server at once.",
            64,
            whole(1)._replace(advice="so many requests at once go to each server, 1 or more"),
        ),
    ]
    prefix: Annotated[
        Literal["collision", "always"],
        Option(
            'Whether names get the prefix `server_` only where several servers share one ("collision"), or "always".',
            "collision",
            one_of("collision", "always"),
        ),
    ]
    model_names: Annotated[
        bool,
        Option(
            "Whether tools with names that models don't take (more than 64 characters, or characters other than letters, "
            "digits, `_` and `-`) are listed under a short name that ends in a digest.",
            True,
            FLAG,
        ),
    ]
    list_wait: Annotated[
        float,
        Option(
            "Seconds after connecting begins in which listings wait for servers that are not there yet.", 5.0, SECONDS
        ),
    ]
    strict: Annotated[
        bool,
        Option("Whether one server that can't be reached at the start is an error of the whole group.", False, FLAG),
    ]
    wrap: Annotated[
        Callable[[Transport, str], Transport] | None,
        Option("`wrap(transport, server)`.", None, or_none(function("`def wrap(transport, server)`", 2, plain=True))),
    ]
    on_elicit: Annotated[
        Callable[..., Any] | None,
        Option(
            "`on_elicit(params, server)`; see `ClientOptions`.",
            None,
            _callback("async def fill_in(form, server)"),
        ),
    ]
    on_elicit_url: Annotated[
        Callable[..., Any] | None,
        Option("`on_elicit_url(params, server)`.", None, _callback("async def open_page(page, server)")),
    ]
    on_sample: Annotated[
        Callable[..., Any] | None,
        Option("`on_sample(params, server)`.", None, _callback("async def ask_model(request, server)")),
    ]
    on_roots: Annotated[
        Sequence[Root | str | Path] | Callable[..., Any] | None,
        Option(
            "The roots, or `on_roots(server)`.",
            None,
            _roots("`async def roots(server)`", 1),
        ),
    ]
    on_log: Annotated[
        Callable[..., Any] | None,
        Option("`on_log(params, server)`.", None, _callback("def log(params, server)")),
    ]
    on_change: Annotated[
        Callable[..., Any] | None,
        Option(
            "`on_change(change, server)`: changes of the lists; `ChangesLost` when a server came late or came back.",
            None,
            _callback("def changed(change, server)"),
        ),
    ]
    on_notification: Annotated[
        Callable[..., Any] | None,
        Option(
            "`on_notification(method, params, server)`.",
            None,
            _callback("def notified(method, params, server)"),
        ),
    ]
    on_progress: Annotated[
        Callable[..., Any] | None,
        Option("`on_progress(progress, server)`.", None, _callback("def report(progress, server)")),
    ]
    on_drift: Annotated[
        Callable[..., Any] | None,
        Option("`on_drift(differences, server)`.", None, _callback("def differs(differences, server)")),
    ]
