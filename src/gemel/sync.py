"""The blocking client, for code without async: scripts and notebooks, also under a running event loop.

`Client` and `ClientGroup` have the methods of those of `gemel`. One background thread runs the event loop of all blocking
clients while one is open. Callbacks that are not async run in worker threads, so they may block.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from gemel.client.call_options import CallOptions, RequestOptions
from gemel.client.callbacks import awaited
from gemel.client.client import Client as AsyncClient
from gemel.client.group.config import Source, read_config
from gemel.client.group.group import ClientGroup as AsyncClientGroup
from gemel.client.group.member import Health, Member
from gemel.client.methods import ResultT as ReplyT
from gemel.client.negotiation import Discovery
from gemel.client.options import CALLBACKS, ClientGroupOptions, ClientOptions
from gemel.client.subscriptions import Subscription as AsyncSubscription
from gemel.client.tasks import ClientTasks, OnStatus, TaskInfo, TaskStatus, ToolTask
from gemel.errors import ConnectFailed, DefinitionError, NotSent
from gemel.loops import leave_to_parent, on_fork
from gemel.options import accepts
from gemel.protocol.changes import Changed, ChangesLost
from gemel.protocol.deviations import Deviation
from gemel.protocol.eras.base import EraName
from gemel.schema.base import Implementation
from gemel.schema.lifecycle import ServerCapabilities
from gemel.schema.tools import CallToolResult, DataT

P = ParamSpec("P")
ResultT = TypeVar("ResultT")

__all__ = ("BlockingTask", "BlockingTasks", "Client", "ClientGroup", "Subscription")


class _Connectable(Protocol):
    """What `Client` and `ClientGroup` of `gemel` have in common."""

    async def connect(self) -> None: ...

    async def close(self) -> None: ...


AsyncT = TypeVar("AsyncT", bound=_Connectable)


class _Background:
    """The thread with the event loop, which exists while a client is open."""

    def __init__(self) -> None:
        self._begin()
        on_fork(self._begin_in_child)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _begin_in_child(self) -> None:
        """A fork does not take the thread along."""
        leave_to_parent(self.loop)
        self._begin()

    def enter(self) -> asyncio.AbstractEventLoop:
        """Count a client, and start the thread for the first one. Returns its event loop."""
        with self._lock:
            self._users += 1
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self.loop.run_forever, name="gemel-client", daemon=True)
                self._thread.start()
            return self.loop

    def leave(self) -> None:
        """Count a client less, and stop the thread after the last one."""
        with self._lock:
            self._users -= 1
            loop, thread = self.loop, self._thread
            if self._users or loop is None or thread is None:
                return
            self.loop = self._thread = None
        asyncio.run_coroutine_threadsafe(_end_loop(loop), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine there and wait for it; Ctrl-C cancels it.

        Raises:
            DefinitionError: This is the thread itself, which would wait for itself.
            NotSent: No client is open.
            Exception: What the coroutine raises.
        """
        loop = self.loop
        try:
            if threading.current_thread() is self._thread:
                raise DefinitionError(
                    "A blocking client would wait here for its own event loop: in an async function use gemel.Client and await it"
                )
            if loop is None:
                raise NotSent("Nothing was sent: the client is not connected")
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():  # it was interrupted: wait until everything that it opened is closed
                with suppress(BaseException):
                    asyncio.run_coroutine_threadsafe(_others_done(), loop).result(_LEAVE)
            raise


async def _end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Do what `asyncio.run` does before it closes its loop."""
    remaining = asyncio.all_tasks() - {asyncio.current_task()}
    for task in remaining:
        task.cancel()
    if remaining:
        await asyncio.wait(remaining, timeout=_LEAVE)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


async def _others_done() -> None:
    """Wait for the cancelled tasks of this loop."""
    cancelled = [task for task in asyncio.all_tasks() if task.cancelling()]
    if cancelled:
        await asyncio.wait(cancelled, timeout=_LEAVE)


#: Seconds for what was interrupted to clean up.
_LEAVE = 5.0

_background = _Background()
_run = _background.run


class _Opened(Generic[AsyncT]):
    """The async client, or group, behind a blocking one, while it is connected.

    Args:
        make: Makes it, in the event loop.
        what: What it is, for errors.
    """

    def __init__(self, make: Callable[[], AsyncT], what: str) -> None:
        self._make = make
        self._what = what
        self._present: AsyncT | None = None
        #: The event loop in which it is connected.
        self._loop: asyncio.AbstractEventLoop | None = None

    def connect(self) -> None:
        """Connect. Raises ConnectFailed if it is connected already, and what `connect` raises."""

        async def connect() -> AsyncT:
            made = self._make()
            await made.connect()
            return made

        if self._present is not None and self._is_here:
            raise ConnectFailed(f"This {self._what} is connected already")
        self._loop = _background.enter()
        try:
            self._present = _run(connect())
        except BaseException:
            _background.leave()
            raise

    def close(self) -> None:
        """Close it, unless it belongs to the parent of this process."""
        present, self._present = self._present, None
        if present is not None and self._is_here:
            try:
                _run(present.close())
            finally:
                _background.leave()

    @property
    def _is_here(self) -> bool:
        return self._loop is _background.loop

    def get(self) -> AsyncT:
        """The async one. Raises NotSent if it can't be used."""
        if self._present is None:
            raise NotSent(f"Nothing was sent: the {self._what} is not connected")
        if not self._is_here:
            text = f"this {self._what} was connected before the process was forked: make another one in this process"
            raise NotSent(f"Nothing was sent: {text}")
        return self._present


def _in_thread(callback: Any) -> Any:
    """The callback, run in a worker thread unless it is async."""
    if not callable(callback) or inspect.iscoroutinefunction(callback):
        return callback

    @functools.wraps(callback)
    async def call(*arguments: Any) -> Any:
        return await awaited(await asyncio.to_thread(callback, *arguments))

    return call


def _threaded(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _in_thread(value) if name in CALLBACKS else value for name, value in options.items()}


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


class BlockingTask(Generic[DataT]):
    """A tool call that runs as a task: `task = client.call_tool("report", task=True)`; see `gemel.ToolTask`.

    What the tool asks meanwhile goes to the callbacks of the client while `wait` or `result` runs.
    """

    def __init__(self, _task: ToolTask[DataT]) -> None:
        self._task = _task

    @property
    def id(self) -> str | None:
        """The id, for `client.tasks.resume`; None if the server answered at once, without a task."""
        return self._task.id

    @property
    def info(self) -> TaskInfo:
        """The state, as it was known last."""
        return self._task.info

    @property
    def status(self) -> TaskStatus:
        """The state, as it was known last."""
        return self._task.status

    def refresh(self) -> TaskInfo:
        """Ask the server for the state.

        Returns:
            The state.

        Raises:
            PeerError: The server does not know the task, or not any more.
        """
        return _run(self._task.refresh())

    def wait(self, *, total: float | None = None, on_status: OnStatus | None = None) -> TaskInfo:
        """Wait until the task has ended, and answer what it asks.

        Args:
            total: Seconds to wait; None for no limit.
            on_status: Called with each new state, in a worker thread.

        Returns:
            The last state.

        Raises:
            CallTimeout: It did not end in time. It goes on, and can be waited for again.
            CallError: The server can't be asked.
        """
        return _run(self._task.wait(total=total, on_status=_in_thread(on_status)))

    def result(self, *, total: float | None = None, on_status: OnStatus | None = None) -> CallToolResult[DataT]:
        """Wait for the result.

        Args:
            total: Seconds to wait; None for no limit.
            on_status: Called with each new state, in a worker thread.

        Returns:
            The result, as `call_tool` returns it.

        Raises:
            ToolCallError: The tool reported an error.
            PeerError: The task failed, or was cancelled.
            CallTimeout: It did not end in time. It goes on, and can be waited for again.
            CallError: The server can't be asked.
        """
        return _run(self._task.result(total=total, on_status=_in_thread(on_status)))

    def cancel(self) -> None:
        """Ask the server to cancel the task, which may have ended before.

        Raises:
            CallError: The server can't be asked.
        """
        _run(self._task.cancel())


class BlockingTasks:
    """`client.tasks`: tasks at the server, by their ids."""

    def __init__(self, _tasks: ClientTasks) -> None:
        self._tasks = _tasks

    def resume(
        self,
        task_id: str,
        *,
        tool: str = "",
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
    ) -> BlockingTask[DataT]:
        """Find a task again, for example after this program was restarted.

        Args:
            task_id: Its id.
            tool: The name of the tool, to check its result.
            returns: The type of `data` of the result.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError.

        Returns:
            The task.

        Raises:
            PeerError: The server does not know the task, or not any more.
        """
        resumed = self._tasks.resume(task_id, tool=tool, returns=returns, raise_on_error=raise_on_error)
        return BlockingTask(_run(resumed))

    def get(self, task_id: str) -> TaskInfo:
        """Get the state of a task.

        Args:
            task_id: Its id.

        Returns:
            The state.

        Raises:
            PeerError: The server does not know the task, or not any more.
        """
        return _run(self._tasks.get(task_id))

    def cancel(self, task_id: str) -> None:
        """Ask the server to cancel a task.

        Args:
            task_id: Its id.

        Raises:
            PeerError: The server does not know the task; or it had ended before, in revision 2025-11-25.
            NotSent: The server cancels no tasks.
        """
        _run(self._tasks.cancel(task_id))

    def list(self) -> list[TaskInfo]:
        """List the tasks of this caller. Only servers of 2025-11-25 that know who is calling have lists.

        Returns:
            Their states.

        Raises:
            NotSent: The server has no lists.
        """
        return _run(self._tasks.list())


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[Client, P], ResultT]:
    """A method of the async client as one that waits for its result."""

    @functools.wraps(method)
    def wait(self: Client, /, *arguments: P.args, **options: P.kwargs) -> ResultT:
        options.update(_threaded(options))
        return _run(method(self._client, *arguments, **options))

    return wait


class Client:
    """A blocking client of one MCP server: `with Client(target) as client`.

    Args:
        target: A URL, a command line, a Python file, a `Server`, or a transport; see `gemel.Client`.
        **options: The options of `gemel.Client`.

    Raises:
        DefinitionError: On connecting: an option is unknown, or its value is not allowed.
    """

    @accepts(ClientOptions)
    def __init__(self, target: Any, **options: Unpack[ClientOptions]) -> None:
        self._opened = _Opened(functools.partial(AsyncClient, target, **_threaded(options)), "client")

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # type checkers report it themselves

        async def __aenter__(self) -> NoReturn:
            raise TypeError("This Client is opened by `with Client(…)`; in async code use gemel.Client")

        __aexit__ = __aenter__

    def connect(self) -> None:
        """Connect; see `gemel.Client.connect`.

        Raises:
            ConnectFailed: The client is connected already, or the server can't be reached.
        """
        self._opened.connect()

    def close(self) -> None:
        """Close the connection; see `gemel.Client.close`."""
        self._opened.close()

    @property
    def _client(self) -> AsyncClient:
        return self._opened.get()

    @property
    def discovery(self) -> Discovery:
        """What the negotiation found out."""
        return self._client.discovery

    @property
    def warnings(self) -> list[Deviation]:
        """How the server deviated from the specification and was understood all the same."""
        return self._client.warnings

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
        """Get the server's settings of a protocol extension; see `gemel.Client.server_extension`.

        Args:
            extension_id: The id of the extension.

        Returns:
            The settings, or None if the server does not declare the extension.
        """
        return self._client.server_extension(extension_id)

    list_tools = _blocking(AsyncClient.list_tools)
    list_resources = _blocking(AsyncClient.list_resources)
    list_resource_templates = _blocking(AsyncClient.list_resource_templates)
    read_resource = _blocking(AsyncClient.read_resource)
    list_prompts = _blocking(AsyncClient.list_prompts)
    get_prompt = _blocking(AsyncClient.get_prompt)
    complete = _blocking(AsyncClient.complete)
    notify = _blocking(AsyncClient.notify)
    ping = _blocking(AsyncClient.ping)
    set_log_level = _blocking(AsyncClient.set_log_level)
    roots_changed = _blocking(AsyncClient.roots_changed)

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
        task: Literal[False] = False,
        **options: Unpack[CallOptions],
    ) -> CallToolResult[DataT]: ...

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
        task: Literal[True],
        task_ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> BlockingTask[DataT]: ...

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
        task: bool = False,
        task_ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> CallToolResult[DataT] | BlockingTask[DataT]:
        """Call a tool; see `gemel.Client.call_tool`.

        Args:
            name: The name of the tool.
            arguments: Its arguments.
            returns: The type of `data` in the result; by default it is decoded JSON.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError.
            task: Whether the server may run the call as a task: then this returns its handle at once. A server or tool
                without tasks is called plainly, and the handle has its result.
            task_ttl: Seconds for which the server is to keep the task; only servers of 2025-11-25 are told.
            **options: See `CallOptions`.

        Returns:
            The result with `content`, `structured_content`, `text` and `data`. With `task=True` a `BlockingTask`, whose
            `result()` waits for that.

        Raises:
            ToolCallError: The tool reported an error.
            CallError: There is no result for another reason; `outcome` says whether the tool may have run.
            DefinitionError: The arguments are not a mapping of strings, or not JSON.
        """
        more: Any = {"returns": returns, "raise_on_error": raise_on_error, **_threaded(options)}
        if not task:
            result: CallToolResult[DataT] = _run(self._client.call_tool(name, arguments, **more))
            return result
        return BlockingTask(_run(self._client.call_tool(name, arguments, task=True, task_ttl=task_ttl, **more)))

    @property
    def tasks(self) -> BlockingTasks:
        """Tasks at the server, by their ids: `task = client.tasks.resume(task_id)`."""
        return BlockingTasks(self._client.tasks)

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[ReplyT] | None = None,
        **options: Unpack[RequestOptions],
    ) -> ReplyT:
        """Send any request; see `gemel.Client.request`.

        Args:
            method: The method, for example "tools/list".
            params: The params.
            result: The type that the result is read into; a dict by default.
            **options: See `RequestOptions`.

        Returns:
            The result.

        Raises:
            PeerError: The server answered with an error.
            CallError: There is no result for another reason; `outcome` says whether the request may have run.
            DefinitionError: A key of `meta` or a header is not allowed.
        """
        given: Any = _threaded(options)
        return _run(self._client.request(method, params, result=result, **given))

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool | Sequence[str] = False,
        resource_list: bool = False,
        topics: Mapping[str, Any] | None = None,
    ) -> Subscription:
        """Subscribe to changes: `with client.listen(tools=True) as changes: for change in changes`.

        Args:
            tools: Whether to subscribe to changes of the list of tools.
            prompts: Whether to subscribe to changes of the list of prompts.
            resources: URIs of resources to watch, or True for changes of the list.
            resource_list: Whether to subscribe to changes of the list of resources, besides URIs.
            topics: Keys of extensions for the filter of `subscriptions/listen`.

        Returns:
            The subscription: a context manager and iterator of `Changed` and `ChangesLost`.
        """

        async def make() -> AsyncSubscription:
            subscription = self._client.listen(
                tools=tools, prompts=prompts, resources=resources, resource_list=resource_list, topics=topics
            )
            return await subscription.__aenter__()

        return Subscription(make)


def run_async(client: Client, use: Callable[[AsyncClient], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run an async function with the client behind a connected blocking one, for add-ons that have async code only.

    Args:
        client: The blocking client.
        use: The function.

    Returns:
        What it returns.

    Raises:
        NotSent: The client is not connected.
    """
    return _run(use(client._client))


def _blocking_group(
    method: Callable[Concatenate[AsyncClientGroup, P], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[ClientGroup, P], ResultT]:
    """A method of the async group as one that waits for its result."""

    @functools.wraps(method)
    def wait(self: ClientGroup, /, *arguments: P.args, **options: P.kwargs) -> ResultT:
        options.update(_threaded(options))
        return _run(method(self._group, *arguments, **options))

    return wait


class ClientGroup:
    """Several servers as one, blocking: `with ClientGroup({"files": "files.py"}) as group`; see `gemel.ClientGroup`.

    Args:
        targets: What each server is reached by.
        **options: The options of `gemel.ClientGroup`.

    Raises:
        DefinitionError: On connecting: an option is unknown, or its value is not allowed.
    """

    @accepts(ClientGroupOptions)
    def __init__(self, targets: Mapping[str, Any], **options: Unpack[ClientGroupOptions]) -> None:
        self._opened = _Opened(functools.partial(AsyncClientGroup, targets, **_threaded(options)), "group")

    @classmethod
    def from_config(cls, source: Source, **options: Unpack[ClientGroupOptions]) -> Self:
        """Make a group of the servers of a configuration; see `gemel.ClientGroup.from_config`.

        Args:
            source: The path of a JSON file with `mcpServers`, or its content.
            **options: Options of the group.

        Returns:
            The group, not connected yet.

        Raises:
            StartError: The file can't be read, or has no servers.
        """
        return cls(read_config(source), **options)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # type checkers report it themselves

        async def __aenter__(self) -> NoReturn:
            raise TypeError("This ClientGroup is opened by `with ClientGroup(…)`; in async code use gemel.ClientGroup")

        __aexit__ = __aenter__

    def connect(self) -> None:
        """Connect to all servers; see `gemel.ClientGroup.connect`.

        Raises:
            ConnectFailed: The group is connected already, or it is `strict` and a server failed.
        """
        self._opened.connect()

    def close(self) -> None:
        """Close all connections. Closing twice is harmless."""
        self._opened.close()

    @property
    def _group(self) -> AsyncClientGroup:
        return self._opened.get()

    @property
    def servers(self) -> dict[str, Member]:
        """The servers by name, with their `state` and `reason`."""
        return self._group.servers

    def health(self, timeout: float = 5.0) -> dict[str, Health]:
        """Check all servers at the same time; see `gemel.ClientGroup.health`.

        Args:
            timeout: Seconds to wait for an answer.

        Returns:
            The health of each server, by name.
        """
        return _run(self._group.health(timeout))

    @property
    def failures(self) -> dict[str, str]:
        """The servers that can't be used, and why; see `gemel.ClientGroup.failures`."""
        return self._group.failures

    @property
    def warnings(self) -> dict[str, list[Deviation]]:
        """How servers deviated from the specification; see `gemel.ClientGroup.warnings`."""
        return self._group.warnings

    ready = _blocking_group(AsyncClientGroup.ready)
    list_tools = _blocking_group(AsyncClientGroup.list_tools)
    call_tool = _blocking_group(AsyncClientGroup.call_tool)
    list_resources = _blocking_group(AsyncClientGroup.list_resources)
    list_resource_templates = _blocking_group(AsyncClientGroup.list_resource_templates)
    read_resource = _blocking_group(AsyncClientGroup.read_resource)
    list_prompts = _blocking_group(AsyncClientGroup.list_prompts)
    get_prompt = _blocking_group(AsyncClientGroup.get_prompt)
