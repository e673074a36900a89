"""The client for code without async: scripts, notebooks, also under a running event loop. The same methods, blocking.

One background thread runs the event loop of all blocking clients, while there is one; callbacks run in worker threads, so
they may block too.
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
from hinge.client.client import Client as AsyncClient
from hinge.client.negotiation import Discovery
from hinge.client.options import ClientOptions
from hinge.client.subscriptions import Subscription
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

#: The options whose callables may block.
_CALLBACKS = ("on_elicit", "on_elicit_url", "on_sample", "on_roots", "on_log", "on_notification")


class _Background:
    """The thread with the event loop: there while a client is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        """One client more."""
        with self._lock:
            self._users += 1
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="hinge-client", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """One client less; the last one ends the thread."""
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
        """Run it there and wait; Ctrl-C cancels it. Raises what it raises, and NotSent when no client is open."""
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
    """A callback that may block, run where it blocks nobody."""
    if not callable(callback) or inspect.iscoroutinefunction(callback):
        return callback

    @functools.wraps(callback)
    async def call(*arguments: Any) -> Any:
        return await asyncio.to_thread(callback, *arguments)

    return call


class Changes:
    """Changes as they come: `with client.listen(…) as changes: for change in changes`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Subscription]]) -> None:
        self._make = make
        self._listening: Subscription | None = None

    def __enter__(self) -> Self:
        self._listening = _run(self._make())
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._listening is not None:
            _run(self._listening.close())

    def __iter__(self) -> Iterator[Changed | ChangesLost]:
        return self

    def __next__(self) -> Changed | ChangesLost:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    def next(self, timeout: float | None = None) -> Changed | ChangesLost | None:
        """The next change; None when listening ended. Raises TimeoutError after `timeout` seconds without one."""
        assert self._listening is not None, "use it in a with block"
        listening = self._listening

        async def take() -> Changed | ChangesLost | None:
            async with asyncio.timeout(timeout):
                return await anext(listening, None)

        return _run(take())


class Client:
    """A conversation with one MCP server: `with Client(target) as client`. Options as for `hinge.Client`."""

    @accepts(ClientOptions)
    def __init__(self, target: Any, **options: Unpack[ClientOptions]) -> None:
        threaded: Any = {name: _in_thread(value) if name in _CALLBACKS else value for name, value in options.items()}
        self._make = functools.partial(AsyncClient, target, **threaded)
        self._opened: AsyncClient | None = None

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def connect(self) -> None:
        """Open the conversation. Raises ConnectFailed or another CallError."""

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
        """End the conversation; twice is fine."""
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
        """What the server turned out to be."""
        return self._client.discovery

    @property
    def era(self) -> EraName:
        """The era in use."""
        return self._client.era

    @property
    def protocol_version(self) -> str:
        """The revision in use."""
        return self._client.protocol_version

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is."""
        return self._client.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server offers."""
        return self._client.server_capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used."""
        return self._client.instructions

    def server_extension(self, extension_id: str) -> dict[str, Any] | None:
        """The server's settings of an extension, None if it doesn't offer it."""
        return self._client.server_extension(extension_id)

    def list_tools(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Tool]:
        """All tools."""
        return _run(self._client.list_tools(cache=cache, **options))

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
        """Call a tool; see `hinge.Client.call_tool`. `on_progress` is called in the background thread: be brief."""
        return _run(self._client.call_tool(name, arguments, **options))

    def list_resources(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Resource]:
        """All resources."""
        return _run(self._client.list_resources(cache=cache, **options))

    def list_resource_templates(
        self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> list[ResourceTemplate]:
        """All resource templates."""
        return _run(self._client.list_resource_templates(cache=cache, **options))

    def read_resource(
        self, uri: str, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> ReadResourceResult:
        """What a resource holds."""
        return _run(self._client.read_resource(uri, cache=cache, **options))

    def list_prompts(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Prompt]:
        """All prompts."""
        return _run(self._client.list_prompts(cache=cache, **options))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> GetPromptResult:
        """The messages of a prompt."""
        return _run(self._client.get_prompt(name, arguments, **options))

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
        """Suggestions for an argument; see `hinge.Client.complete`."""
        asking = self._client.complete(
            argument=argument, value=value, prompt=prompt, resource=resource, given=given, **options
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
        """Any request; see `hinge.Client.request`."""
        return _run(self._client.request(method, params, result=result, **options))

    def notify(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification of your own."""
        _run(self._client.notify(method, params, meta=meta))

    def ping(self) -> None:
        """Ask for a sign of life."""
        _run(self._client.ping())

    def set_log_level(self, level: LoggingLevel) -> None:
        """From which level on log messages are wanted."""
        _run(self._client.set_log_level(level))

    def roots_changed(self) -> None:
        """Tell a handshake server that the roots changed."""
        _run(self._client.roots_changed())

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool | Sequence[str] = False,
        resource_list: bool = False,
        topics: Mapping[str, Any] | None = None,
    ) -> Changes:
        """Hear of changes: `with client.listen(tools=True) as changes: for change in changes`."""

        async def make() -> Subscription:
            listening = self._client.listen(
                tools=tools, prompts=prompts, resources=resources, resource_list=resource_list, topics=topics
            )
            return await listening.__aenter__()

        return Changes(make)
