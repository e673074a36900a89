"""The blocking client, for code without async: scripts and notebooks, also under a running event loop.

`Client` and `ClientGroup` have the methods of those of `gemel`. Callbacks that are not async run in worker threads, so they
may block. Written by `python -m tools.blocking_client`: change `gemel.client` instead.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Generic, Literal, Self, Unpack, overload

from gemel.blocking import Blocking, Subscription, in_thread, run, threaded
from gemel.client.cache import CacheMode
from gemel.client.call_options import CallOptions, RequestOptions
from gemel.client.client import Client as AsyncClient
from gemel.client.group.config import Source, pick, read_config
from gemel.client.group.group import ClientGroup as AsyncClientGroup
from gemel.client.group.group import Kind, Listing
from gemel.client.group.member import Health, Member
from gemel.client.group.names import NameOrigin
from gemel.client.methods import ResultT
from gemel.client.negotiation import Discovery
from gemel.client.options import ClientGroupOptions, ClientOptions
from gemel.client.tasks import ClientTasks, OnStatus, TaskInfo, TaskStatus, ToolTask
from gemel.options import accepts
from gemel.protocol.deviations import Deviation
from gemel.protocol.eras.base import EraName
from gemel.schema.base import Implementation
from gemel.schema.completion import Completion
from gemel.schema.content import ResourceLink
from gemel.schema.lifecycle import ServerCapabilities
from gemel.schema.notifications import LoggingLevel
from gemel.schema.prompts import GetPromptResult, Prompt
from gemel.schema.resources import ReadResourceResult, Resource, ResourceTemplate
from gemel.schema.tools import CallToolResult, DataT, Tool

__all__ = ("BlockingTask", "BlockingTasks", "Client", "ClientGroup", "Subscription")


class BlockingTask(Generic[DataT]):
    """A tool call that runs as a task: `task = client.call_tool("report", task=True)`.

    What the tool asks meanwhile goes to the callbacks of the client while `wait` or `result` runs.
    """

    def __init__(self, _async: ToolTask[DataT]) -> None:
        self._async = _async

    @property
    def id(self) -> str | None:
        """The id, for `client.tasks.resume`; None if the server answered at once, without a task."""
        return self._async.id

    @property
    def info(self) -> TaskInfo:
        """The state, as it was known last."""
        return self._async.info

    @property
    def status(self) -> TaskStatus:
        """The state, as it was known last."""
        return self._async.status

    def refresh(self) -> TaskInfo:
        """Ask the server for the state.

        Returns:
            The state.

        Raises:
            PeerError: The server does not know the task, or not any more.
        """
        return run(self._async.refresh())

    def wait(self, *, total: float | None = None, on_status: OnStatus | None = None) -> TaskInfo:
        """Wait until the task has ended, and answer what it asks.

        Args:
            total: Seconds to wait; None for no limit.
            on_status: Called with each new state.

        Returns:
            The last state.

        Raises:
            CallTimeout: It did not end in time. It goes on, and can be waited for again.
            CallError: The server can't be asked.
        """
        return run(self._async.wait(total=total, on_status=in_thread(on_status)))

    def result(self, *, total: float | None = None, on_status: OnStatus | None = None) -> CallToolResult[DataT]:
        """Wait for the result.

        Args:
            total: Seconds to wait; None for no limit.
            on_status: Called with each new state.

        Returns:
            The result, as `call_tool` returns it.

        Raises:
            ToolCallError: The tool reported an error.
            PeerError: The task failed, or was cancelled.
            CallTimeout: It did not end in time. It goes on, and can be waited for again.
            CallError: The server can't be asked.
        """
        return run(self._async.result(total=total, on_status=in_thread(on_status)))

    def cancel(self) -> None:
        """Ask the server to cancel the task, which may have ended before.

        Raises:
            CallError: The server can't be asked.
        """
        run(self._async.cancel())


class BlockingTasks:
    """`client.tasks`: tasks at the server, by their ids."""

    def __init__(self, _async: ClientTasks) -> None:
        self._async = _async

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
        return BlockingTask(run(self._async.resume(task_id, tool=tool, returns=returns, raise_on_error=raise_on_error)))

    def get(self, task_id: str) -> TaskInfo:
        """Get the state of a task.

        Args:
            task_id: Its id.

        Returns:
            The state.

        Raises:
            PeerError: The server does not know the task, or not any more.
        """
        return run(self._async.get(task_id))

    def list(self) -> list[TaskInfo]:
        """List the tasks of this caller. Only servers of 2025-11-25 that know who is calling have lists.

        Returns:
            Their states.

        Raises:
            NotSent: The server has no lists.
        """
        return run(self._async.list())

    def cancel(self, task_id: str) -> None:
        """Ask the server to cancel a task.

        Args:
            task_id: Its id.

        Raises:
            PeerError: The server does not know the task; or it had ended before, in revision 2025-11-25.
            NotSent: The server cancels no tasks.
        """
        run(self._async.cancel(task_id))


class Client(Blocking[AsyncClient]):
    """A client of one MCP server: `with Client(target) as client`.

    Every callback may be sync or async. The client declares the capabilities for which it has callbacks.

    Args:
        target: A URL, a command line (a string or a list of words), a Python file, a `Server`, or a transport.
        **options: See `ClientOptions`; among them the options of the transport, `headers`, `auth`, `env`, `cwd`.

    Raises:
        DefinitionError: An option is unknown, or its value is not allowed.
        StartError: The lock file can't be read.

    Example:
        >>> with Client("weather.py") as client:
        ...     result = client.call_tool("forecast", {"city": "Oslo"})
    """

    @accepts(ClientOptions)
    def __init__(self, target: object, **options: Unpack[ClientOptions]) -> None:
        super().__init__(functools.partial(AsyncClient, target, **threaded(options)), "client")

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[ResultT] | None = None,
        **options: Unpack[RequestOptions],
    ) -> ResultT:
        """Send any request, for example one of an extension.

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
        return run(self._async.request(method, params, result=result, **threaded(options)))

    def notify(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send any notification.

        Args:
            method: The method.
            params: The params.
            meta: Keys for the `_meta` of the params, with a prefix of your own.

        Raises:
            NotSent: The client is not connected.
            ChannelClosed: The connection was lost before it was sent.
            DefinitionError: A key of `meta` is not allowed.
        """
        run(self._async.notify(method, params, meta=meta))

    @property
    def discovery(self) -> Discovery:
        """What the negotiation found out. Save it and pass it as `discovery=` to connect later without a round trip.

        Raises:
            NotSent: The client was not connected yet.
        """
        return self._async.discovery

    @property
    def tasks(self) -> BlockingTasks:
        """Tasks at the server, by their ids: `task = client.tasks.resume(task_id)`."""
        return BlockingTasks(self._async.tasks)

    @property
    def warnings(self) -> list[Deviation]:
        """How the server, and the authorization server of its login, deviated from the specification since this client was made.

        Each of these was understood all the same, and logged once at level WARNING.
        """
        return self._async.warnings

    @property
    def era(self) -> EraName:
        """The protocol generation in use: "2025" (handshake) or "2026" (stateless)."""
        return self._async.era

    @property
    def protocol_version(self) -> str:
        """The protocol revision in use, for example "2026-07-28"."""
        return self._async.protocol_version

    @property
    def server_info(self) -> Implementation | None:
        """The name and version that the server gives itself, for display only."""
        return self._async.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self._async.server_capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words."""
        return self._async.instructions

    def server_extension(self, extension_id: str) -> dict[str, Any] | None:
        """Get the server's settings of a protocol extension.

        Args:
            extension_id: The id of the extension, for example "io.modelcontextprotocol/ui".

        Returns:
            The settings, or None if the server does not declare the extension.
        """
        return self._async.server_extension(extension_id)

    def list_tools(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Tool]:
        """List all tools, over all pages (`tools/list`).

        Over HTTP in the stateless era, tools whose `x-mcp-header` annotations are invalid are left out and logged.

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The tools, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        return run(self._async.list_tools(cache=cache, **threaded(options)))

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
        """Call a tool (`tools/call`).

        A call is repeated after a lost connection only if it did not run, or if the tool was listed as read-only or
        idempotent.

        Args:
            name: The name of the tool.
            arguments: The arguments, by name.
            returns: The type of `data` of the result: a dataclass, a TypedDict, a msgspec struct, a pydantic model or a
                built-in type. By default `data` is the structured content as decoded JSON.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError. Otherwise look at `is_error`;
                the `data` of an error does not have the type `returns`. A call that the server refuses with -32602 (an
                unknown tool, arguments that don't fit) or -32021 (the tool asks what this client can't answer) then gives such
                a result, too, for the model to read.
            task: Whether the server may run the call as a task: then this returns its handle at once. A server or tool
                without tasks is called plainly, and the handle has its result.
            task_ttl: Seconds for which the server is to keep the task; only servers of 2025-11-25 are told.
            **options: See `CallOptions`.

        Returns:
            The result with `content`, `structured_content`, `text` and `data`. With `task=True` a `BlockingTask`, whose
            `result()` waits for that.

        Raises:
            ToolCallError: The tool reported an error. It is a ToolError, too.
            InvalidResponse: The structured content does not fit the output schema of the listed tool, or `returns`.
            CallError: There is no result; `outcome` says whether the tool may have run.
            DefinitionError: The arguments are not a mapping.

        Example:
            >>> result = client.call_tool("forecast", {"city": "Oslo"}, returns=Forecast)
            >>> result.data.high
        """
        method: Any = self._async.call_tool
        result = run(
            method(
                name,
                arguments,
                returns=returns,
                raise_on_error=raise_on_error,
                task=task,
                task_ttl=task_ttl,
                **threaded(options),
            )
        )
        return BlockingTask(result) if isinstance(result, ToolTask) else result

    def list_resources(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Resource]:
        """List all resources, over all pages (`resources/list`).

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The resources, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        return run(self._async.list_resources(cache=cache, **threaded(options)))

    def list_resource_templates(
        self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> list[ResourceTemplate]:
        """List all resource templates, over all pages (`resources/templates/list`).

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The resource templates, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        return run(self._async.list_resource_templates(cache=cache, **threaded(options)))

    def read_resource(
        self, uri: str | Resource | ResourceLink, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> ReadResourceResult:
        """Read a resource (`resources/read`).

        Args:
            uri: The URI, a listed resource, or a link from a result.
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The contents.

        Raises:
            PeerError: There is no such resource, see `is_not_found`, or the server failed.
            CallError: There is no result for another reason.
        """
        return run(self._async.read_resource(uri, cache=cache, **threaded(options)))

    def list_prompts(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Prompt]:
        """List all prompts, over all pages (`prompts/list`).

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The prompts, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        return run(self._async.list_prompts(cache=cache, **threaded(options)))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> GetPromptResult:
        """Get the messages of a prompt (`prompts/get`).

        Args:
            name: The name of the prompt.
            arguments: The arguments, by name; their values are strings.
            **options: See `CallOptions`.

        Returns:
            The messages.

        Raises:
            CallError: There is no result.
            DefinitionError: The arguments are not a mapping of strings.
        """
        return run(self._async.get_prompt(name, arguments, **threaded(options)))

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
        """Get suggestions for an argument of a prompt or a variable of a resource template (`completion/complete`).

        Args:
            argument: The name of the argument or variable.
            value: What was typed so far.
            prompt: The name of the prompt; either this or `resource`.
            resource: The URI template of the resource.
            given: The values of other arguments.
            **options: See `CallOptions`.

        Returns:
            The suggestions.

        Raises:
            CallError: There is no result.
            ValueError: Both or neither of `prompt` and `resource` are given.
        """
        return run(
            self._async.complete(
                argument=argument, value=value, prompt=prompt, resource=resource, given=given, **threaded(options)
            )
        )

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

        A lost subscription is opened again, with a `ChangesLost` in between.

        Args:
            tools: Whether to subscribe to changes of the list of tools.
            prompts: Whether to subscribe to changes of the list of prompts.
            resources: URIs of resources to watch, or True for changes of the list.
            resource_list: Whether to subscribe to changes of the list of resources, besides URIs.
            topics: Keys of extensions for the filter of `subscriptions/listen`. Their notifications go to the extension and
                to `on_notification`.

        Returns:
            The subscription: a context manager and iterator of `Changed` and `ChangesLost`.
        """
        return Subscription(
            lambda: self._async.listen(
                tools=tools, prompts=prompts, resources=resources, resource_list=resource_list, topics=topics
            )
        )

    @classmethod
    def from_config(cls, source: Source, name: str | None = None, **options: Unpack[ClientOptions]) -> Self:
        """Make a client of one server of a configuration.

        Args:
            source: The path of a JSON file with `mcpServers`, or its content.
            name: The name of the server; not needed if the configuration has only one.
            **options: Options of the client, which replace those of the configuration. If the entry has options of a login, those
                of an OAuth for `auth` are added: who logs in, and where logins are kept.

        Returns:
            The client, not connected yet.

        Raises:
            StartError: The configuration is invalid, or has no such server.
        """
        entry = pick(read_config(source), name)
        login = {"auth": options.pop("auth", None)} if entry.oauth else {}
        target, entry_options = entry.reach(login)
        merged: Any = {**entry_options, **options}
        return cls(target, **merged)

    def ping(self) -> None:
        """Check that the server answers: with `ping`, or `server/discover` in the stateless era, which has no ping.

        Raises:
            CallError: It does not.
        """
        run(self._async.ping())

    def set_log_level(self, level: LoggingLevel) -> None:
        """Set the lowest level of the log messages that `on_log` gets.

        See https://modelcontextprotocol.io/specification/draft/server/utilities/logging.

        Args:
            level: The level, for example "warning".

        Raises:
            DefinitionError: There is no such level.
            NotSent: The client is not connected.
        """
        run(self._async.set_log_level(level))

    def roots_changed(self) -> None:
        """Tell a handshake server that the roots changed; a stateless server requests them when it needs them.

        Raises:
            NotSent: The client is not connected.
        """
        run(self._async.roots_changed())


class ClientGroup(Blocking[AsyncClientGroup]):
    """Several servers: `with ClientGroup({"files": "files.py", "web": "https://host/mcp"}) as group`.

    All servers are connected at the same time, and the group can be used as soon as the first one is there. One that can't be
    reached is tried again in the background, with backoff; `servers[name]` has its `state` and `reason`. Names of tools and
    prompts that several servers have are written `server_name`. Names of tools that models don't take are replaced by short
    ones. The `_meta` of everything listed holds the name of the server under "gemel/server".

    Args:
        targets: What each server is reached by: what a Client takes, or a Client, which keeps its own options and callbacks.
            `from_config` reads them from a file.
        **options: See `ClientGroupOptions`. Options of a transport, such as `auth`, are for the servers that have this transport.
            Each callback gets the name of the server as an additional last argument: `on_elicit(params, server)`,
            `on_change(change, server)`. `on_change` is also called, with `ChangesLost`, for a server that was reached late or
            again.

    Attributes:
        servers: The servers by name, in their order.

    Raises:
        DefinitionError: An option is unknown, or its value is not allowed.

    Example:
        >>> with ClientGroup.from_config("mcp.json") as group:
        ...     tools = group.list_tools()
    """

    @accepts(ClientGroupOptions)
    def __init__(self, targets: Mapping[str, Any], **options: Unpack[ClientGroupOptions]) -> None:
        super().__init__(functools.partial(AsyncClientGroup, targets, **threaded(options)), "group")

    @property
    def servers(self) -> dict[str, Member]:
        """The servers by name, in their order."""
        return self._async.servers

    @classmethod
    def from_config(cls, source: Source, **options: Unpack[ClientGroupOptions]) -> Self:
        """Make a group of the servers of a configuration.

        An entry with a mistake is a failed server; all others work.

        Args:
            source: The path of a JSON file with `mcpServers`, or its content.
            **options: Options of the group. What an entry has itself takes their place; headers and environment variables are
                added to those of the entry.

        Returns:
            The group, not connected yet.

        Raises:
            StartError: The file can't be read, or has no servers.
        """
        return cls(read_config(source), **options)

    def ready(self) -> None:
        """Wait until each server is ready or has failed once. Those that failed are in `failures`.

        Without this, a group can be used as soon as its first server is there.
        """
        run(self._async.ready())

    def health(self, timeout: float = 5.0) -> dict[str, Health]:
        """Check all servers at the same time.

        Args:
            timeout: Seconds to wait for an answer.

        Returns:
            The health of each server, by name.
        """
        return run(self._async.health(timeout))

    @property
    def failures(self) -> dict[str, str]:
        """The servers that could not be reached, were lost, or whose entry has a mistake, and why, by name."""
        return self._async.failures

    @property
    def warnings(self) -> dict[str, list[Deviation]]:
        """How servers deviated from the specification and were understood all the same, by name; see `Client.warnings`."""
        return self._async.warnings

    def list_tools(self, *, cache: CacheMode = "use") -> Listing[Tool]:
        """List the tools of all available servers, with merged names.

        Servers that are connecting are waited for until `list_wait` seconds after `connect`; the other listings do the same.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The tools, in the order of the servers. `missing` has those that fail or are not there yet.
        """
        return run(self._async.list_tools(cache=cache))

    def list_prompts(self, *, cache: CacheMode = "use") -> Listing[Prompt]:
        """List the prompts of all available servers, with merged names.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The prompts, in the order of the servers. `missing` has those that fail or are not there yet.
        """
        return run(self._async.list_prompts(cache=cache))

    def list_resources(self, *, cache: CacheMode = "use") -> Listing[Resource]:
        """List the resources of all available servers. A URI that several servers have is listed once for each.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The resources, in the order of the servers. `missing` has those that fail or are not there yet.
        """
        return run(self._async.list_resources(cache=cache))

    def list_resource_templates(self, *, cache: CacheMode = "use") -> Listing[ResourceTemplate]:
        """List the resource templates of all available servers.

        Args:
            cache: "use" the caches of the clients, "refresh" them, or "bypass" them.

        Returns:
            The resource templates, in the order of the servers. `missing` has those that fail or are not there yet.
        """
        return run(self._async.list_resource_templates(cache=cache))

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
        server: str | None = None,
        **options: Unpack[CallOptions],
    ) -> CallToolResult[DataT]:
        """Call a tool; see `Client.call_tool`.

        Args:
            name: The merged name, also with the prefix of the server where the list has none, or as it was before it was
                changed for models; or with `server` the name that the server uses.
            arguments: The arguments, by name.
            returns: The type of `data` of the result.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError. Otherwise a tool that no server
                has gives such a result, too.
            server: The name of the server.
            **options: See `CallOptions`.

        Returns:
            The result.

        Raises:
            NotSent: No server has the tool, or its server is not available.
            ToolCallError: The tool reported an error.
            CallError: There is no result for another reason.
        """
        return run(
            self._async.call_tool(
                name, arguments, returns=returns, raise_on_error=raise_on_error, server=server, **threaded(options)
            )
        )

    def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        server: str | None = None,
        **options: Unpack[CallOptions],
    ) -> GetPromptResult:
        """Get the messages of a prompt; see `Client.get_prompt`.

        Args:
            name: The merged name, also with the prefix of the server where the list has none; or with `server` the name that
                the server uses.
            arguments: The arguments, by name.
            server: The name of the server.
            **options: See `CallOptions`.

        Returns:
            The messages.

        Raises:
            NotSent: No server has the prompt, or its server is not available.
            CallError: There is no result for another reason.
        """
        return run(self._async.get_prompt(name, arguments, server=server, **threaded(options)))

    def read_resource(
        self,
        uri: str | Resource | ResourceLink,
        *,
        server: str | None = None,
        cache: CacheMode = "use",
        **options: Unpack[CallOptions],
    ) -> ReadResourceResult:
        """Read a resource; see `Client.read_resource`.

        Args:
            uri: The URI, a listed resource, or a link from a result.
            server: The name of the server; by default the one that listed the resource or sent the link, that lists its
                URI, or that has a template for it.
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The contents.

        Raises:
            NotSent: No server or several servers list the URI, or the server is not available.
            CallError: There is no result for another reason.
        """
        return run(self._async.read_resource(uri, server=server, cache=cache, **threaded(options)))

    def request(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[ResultT] | None = None,
        **options: Unpack[RequestOptions],
    ) -> ResultT:
        """Send any request to one server; see `Client.request`.

        Args:
            server: The name of the server.
            method: The method.
            params: The params.
            result: The type that the result is read into; a dict by default.
            **options: See `RequestOptions`.

        Returns:
            The result.

        Raises:
            NotSent: There is no such server, or it is not available.
            CallError: There is no result for another reason.
        """
        return run(self._async.request(server, method, params, result=result, **threaded(options)))

    def origin(self, name: str, kind: Kind = "tools") -> NameOrigin:
        """Find the server that a merged name belongs to.

        Args:
            name: The merged name: as it was listed, with the prefix of the server, or as it was before it was changed for models.
            kind: "tools" or "prompts".

        Returns:
            The name of the server, and the name that it uses.

        Raises:
            NotSent: The name was not listed.
        """
        return self._async.origin(name, kind)
