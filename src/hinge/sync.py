"""The blocking client, for code without async: scripts and notebooks, also under a running event loop.

`Client` has the methods of `hinge.Client`. One background thread runs the event loop of all blocking clients while one is
open. Callbacks that are not async run in worker threads, so they may block.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack, overload

from hinge.client.cache import CacheMode
from hinge.client.call_options import CallOptions, RequestOptions
from hinge.client.callbacks import awaited
from hinge.client.client import Client as AsyncClient
from hinge.client.negotiation import Discovery
from hinge.client.options import ClientOptions
from hinge.client.subscriptions import Subscription as AsyncSubscription
from hinge.errors import ConnectFailed, NotSent
from hinge.options import accepts
from hinge.protocol.changes import Changed, ChangesLost
from hinge.protocol.eras.base import EraName
from hinge.schema.base import Implementation
from hinge.schema.completion import Completion
from hinge.schema.lifecycle import ServerCapabilities
from hinge.schema.notifications import LoggingLevel
from hinge.schema.prompts import GetPromptResult, Prompt
from hinge.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from hinge.schema.tools import CallToolResult, Tool

ResultT = TypeVar("ResultT")
ReturnT = TypeVar("ReturnT")
ClientT = TypeVar("ClientT")

#: The options whose functions may block.
_CALLBACKS = (
    "on_elicit",
    "on_elicit_url",
    "on_sample",
    "on_roots",
    "on_log",
    "on_change",
    "on_notification",
    "on_progress",
)

__all__ = ("Client", "Subscription")


class _Background:
    """The thread with the event loop, which exists while a client is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        """Count a client, and start the thread for the first one."""
        with self._lock:
            self._users += 1
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="hinge-client", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """Count a client less, and stop the thread after the last one."""
        with self._lock:
            self._users -= 1
            loop, thread = self._loop, self._thread
            if self._users or loop is None or thread is None:
                return
            self._loop = self._thread = None
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine there and wait for it; Ctrl-C cancels it. Raises what it raises, and NotSent if no client is open."""
        if self._loop is None:
            work.close()
            raise NotSent("Nothing was sent: the client is not connected")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_background = _Background()
_run = _background.run


def _in_thread(callback: Any) -> Any:
    """The callback, run in a worker thread unless it is async."""
    if not callable(callback) or inspect.iscoroutinefunction(callback):
        return callback

    @functools.wraps(callback)
    async def call(*arguments: Any) -> Any:
        return await awaited(await asyncio.to_thread(callback, *arguments))

    return call


def _threaded(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _in_thread(value) if name in _CALLBACKS else value for name, value in options.items()}


class Subscription:
    """An open subscription: `with client.listen(…) as changes: for change in changes`. Made by `Client.listen`."""

    def __init__(self, _open: Callable[[], Coroutine[Any, Any, AsyncSubscription]]) -> None:
        self._open = _open
        self._subscription: AsyncSubscription | None = None

    def __enter__(self) -> Self:
        self._subscription = _run(self._open())
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._subscription is not None:
            _run(self._subscription.close())

    def __iter__(self) -> Iterator[Changed | ChangesLost]:
        return self

    def __next__(self) -> Changed | ChangesLost:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    def next(self, timeout: float | None = None) -> Changed | ChangesLost | None:
        """Wait for the next change.

        Args:
            timeout: Seconds to wait; None for no limit.

        Returns:
            The change; None when the subscription has ended.

        Raises:
            TimeoutError: There was no change in time.
            ConnectionLost: The subscription was lost and can't be opened again.
        """
        assert self._subscription is not None, "use it in a with block"
        subscription = self._subscription

        async def take() -> Changed | ChangesLost | None:
            async with asyncio.timeout(timeout):
                return await anext(subscription, None)

        return _run(take())


def _documented(cls: type[ClientT]) -> type[ClientT]:
    """Give the methods of the blocking client the documentation of the async ones."""
    for name, method in vars(cls).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            method.__doc__ = getattr(AsyncClient, name).__doc__
    return cls


@_documented
class Client:
    """A blocking client of one MCP server: `with Client(target) as client`.

    Args:
        target: A URL, a command line, a Python file, a `Server`, or a transport; see `hinge.Client`.
        **options: The options of `hinge.Client`.

    Raises:
        DefinitionError: On connecting: an option is unknown, or its value is not allowed.
    """

    @accepts(ClientOptions)
    def __init__(self, target: Any, **options: Unpack[ClientOptions]) -> None:
        self._make = functools.partial(AsyncClient, target, **_threaded(options))
        self._opened: AsyncClient | None = None

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def connect(self) -> None:
        """Connect; see `hinge.Client.connect`."""

        async def connect() -> AsyncClient:
            client = self._make()
            await client.connect()
            return client

        if self._opened is not None:
            raise ConnectFailed("This client is connected already")
        _background.enter()
        try:
            self._opened = _run(connect())
        except BaseException:
            _background.leave()
            raise

    def close(self) -> None:
        """Close the connection; see `hinge.Client.close`."""
        client, self._opened = self._opened, None
        if client is not None:
            try:
                _run(client.close())
            finally:
                _background.leave()

    @property
    def _client(self) -> AsyncClient:
        if self._opened is None:
            raise NotSent("Nothing was sent: the client is not connected")
        return self._opened

    @property
    def discovery(self) -> Discovery:
        """What the negotiation found out."""
        return self._client.discovery

    @property
    def era(self) -> EraName:
        """The protocol generation in use."""
        return self._client.era

    @property
    def protocol_version(self) -> str:
        """The protocol revision in use."""
        return self._client.protocol_version

    @property
    def server_info(self) -> Implementation | None:
        """The name and version that the server gives itself."""
        return self._client.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self._client.server_capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used."""
        return self._client.instructions

    def server_extension(self, extension_id: str) -> dict[str, Any] | None:
        """See `hinge.Client.server_extension`."""
        return self._client.server_extension(extension_id)

    def list_tools(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Tool]:
        """See `hinge.Client.list_tools`."""
        return _run(self._client.list_tools(cache=cache, **_threaded(options)))

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[ReturnT],
        **options: Unpack[CallOptions],
    ) -> ReturnT: ...

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        raise_on_error: bool = True,
        **options: Unpack[CallOptions],
    ) -> CallToolResult: ...

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """See `hinge.Client.call_tool`."""
        return _run(self._client.call_tool(name, arguments, **_threaded(options)))

    def list_resources(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Resource]:
        """See `hinge.Client.list_resources`."""
        return _run(self._client.list_resources(cache=cache, **_threaded(options)))

    def list_resource_templates(
        self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> list[ResourceTemplate]:
        """See `hinge.Client.list_resource_templates`."""
        return _run(self._client.list_resource_templates(cache=cache, **_threaded(options)))

    def read_resource(
        self, uri: str, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> ReadResourceResult:
        """See `hinge.Client.read_resource`."""
        return _run(self._client.read_resource(uri, cache=cache, **_threaded(options)))

    def list_prompts(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Prompt]:
        """See `hinge.Client.list_prompts`."""
        return _run(self._client.list_prompts(cache=cache, **_threaded(options)))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> GetPromptResult:
        """See `hinge.Client.get_prompt`."""
        return _run(self._client.get_prompt(name, arguments, **_threaded(options)))

    def complete(
        self,
        *,
        argument: str,
        value: str = "",
        prompt: str | None = None,
        resource: str | None = None,
        given: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Completion:
        """See `hinge.Client.complete`."""
        asking = self._client.complete(
            argument=argument, value=value, prompt=prompt, resource=resource, given=given, **_threaded(options)
        )
        return _run(asking)

    @overload
    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[ResultT],
        **options: Unpack[RequestOptions],
    ) -> ResultT: ...

    @overload
    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: None = None,
        **options: Unpack[RequestOptions],
    ) -> dict[str, Any]: ...

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, result: Any = None, **options: Any
    ) -> Any:
        """See `hinge.Client.request`."""
        return _run(self._client.request(method, params, result=result, **_threaded(options)))

    def notify(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """See `hinge.Client.notify`."""
        _run(self._client.notify(method, params, meta=meta))

    def ping(self) -> None:
        """See `hinge.Client.ping`."""
        _run(self._client.ping())

    def set_log_level(self, level: LoggingLevel) -> None:
        """See `hinge.Client.set_log_level`."""
        _run(self._client.set_log_level(level))

    def roots_changed(self) -> None:
        """See `hinge.Client.roots_changed`."""
        _run(self._client.roots_changed())

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool | Sequence[str] = False,
        resource_list: bool = False,
        topics: Mapping[str, Any] | None = None,
    ) -> Subscription:
        """See `hinge.Client.listen`; here the subscription is a context manager and iterator."""

        async def make() -> AsyncSubscription:
            subscription = self._client.listen(
                tools=tools, prompts=prompts, resources=resources, resource_list=resource_list, topics=topics
            )
            return await subscription.__aenter__()

        return Subscription(make)
