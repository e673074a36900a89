"""`CodeMode`: a server whose caller gets few tools, one of which runs scripts that call all others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from fnmatch import fnmatchcase
from typing import Any, Unpack

from gemel.client.client import Client
from gemel.client.group.group import ClientGroup
from gemel.client.methods import ClientMethods
from gemel.client.options import ClientOptions
from gemel.code.around import CodeModeAround, ToolOrigin
from gemel.code.sandbox import ScriptLimits
from gemel.code.tools import MODES, ListMode
from gemel.errors import CallError, DefinitionError, ToolError
from gemel.options import Check, check_values, or_none, whole
from gemel.schema.tools import ListToolsResult
from gemel.server.composition.mount import Catalog
from gemel.server.context import Context
from gemel.server.middleware.chain import CallNext
from gemel.server.middleware.result_pages import Spill
from gemel.server.server import Server

_OPTIONS = {
    "mode": Check(lambda value: value in MODES, f"use one of {', '.join(MODES)}"),
    "by_url": Check(lambda value: isinstance(value, bool), "use True or False"),
    "always": Check(lambda value: not isinstance(value, str), "use a list of names of tools"),
    "trust_hints": Check(lambda value: not isinstance(value, str), "use a list of names of servers"),
    "limits": or_none(Check(lambda value: isinstance(value, ScriptLimits), "use ScriptLimits(…)")),
    "output": whole(2000),
    "spill": or_none(Check(lambda value: isinstance(value, Spill), "use Spill(…)")),
}


class CodeMode:
    """Middleware by which callers get a few tools in place of all: `Server.from_config("mcp.json", middleware=[CodeMode()])`.

    A caller's list has the tools of `always`, `search_tools`, which finds the others, and in the mode "code" `run_code`, which
    runs a Python script that calls them, and `query_code`, whose scripts can only call tools that read; in the mode "search"
    `call_tool`. Tools that are not listed can be called by name as before. Each call of a script is a call of its caller:
    visibility, scopes, all middleware, limits, questions to the user and cancellation are those of any other. In the stateless
    era a script runs from its start in each round; calls that ended aren't repeated.

    Make it the first middleware: policies and receipts after it see the calls of scripts, and not the scripts. Results of
    scripts that are too long are kept in pages, as by `ResultLimit(…, spill=True)`.

    Args:
        mode: What a caller's list has: "code", "search", or "all" for every tool.
        by_url: Whether a client may choose another mode by its URL: `https://host/mcp?tools=search`. It changes what is
            listed, never what is allowed.
        always: Names of tools that are listed besides.
        trust_hints: The servers elsewhere whose `readOnlyHint` is believed, as globs: prefixes of mounts, which are the names
            in a configuration, and names in a client group. Tools that are registered in this process are always believed.
        limits: Bounds of scripts; `ScriptLimits()` by default.
        output: The bytes of a script's result, 2000 or more.
        spill: How long results that are too long are kept, and how many.

    Raises:
        DefinitionError: A value is out of range.
    """

    def __init__(
        self,
        mode: ListMode = "code",
        *,
        by_url: bool = True,
        always: Collection[str] = (),
        trust_hints: Collection[str] = (),
        limits: ScriptLimits | None = None,
        output: int = 20_000,
        spill: Spill | None = None,
    ) -> None:
        check_values({name: value for name, value in locals().items() if name in _OPTIONS}, _OPTIONS)
        self.mode: ListMode = mode
        self.by_url = by_url
        self.always = frozenset(always)
        self.limits = limits or ScriptLimits()
        self.output = output
        self.spill = spill or Spill()
        self._trusted = tuple(trust_hints)

    def trusts(self, server: str) -> bool:
        """Return whether hints of a server elsewhere are believed.

        Args:
            server: Its prefix or name.

        Returns:
            Whether one of `trust_hints` fits.
        """
        return any(fnmatchcase(server, one) for one in self._trusted)

    def placed_in(self, owner: Any, name: str | None = None, /) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return what runs around one server, which calls this.

        Args:
            owner: The server.
            name: Not used.

        Returns:
            The middleware.

        Raises:
            DefinitionError: It is a client.
        """
        if isinstance(owner, ClientMethods):
            raise DefinitionError("CodeMode is no middleware of a client: use CodeMode().client(client)")

        async def locate(ctx: Context[Any], tool: str) -> ToolOrigin:
            catalog: Catalog = owner.catalog
            found = await catalog.locate_tool(ctx, tool)
            server = found.server or owner.name
            return ToolOrigin(server, tool.removeprefix(f"{server}_"), found.tool is not None or self.trusts(server))

        return CodeModeAround(self, locate)

    def client(self, of: ClientMethods | ClientGroup, **options: Unpack[ClientOptions]) -> Client:
        """Return a client with these few tools over the tools of another client or of a client group.

        Whatever takes a client takes it, such as the adapters for agents. Questions of the servers go to the callbacks of `of`.

        Args:
            of: A connected client or client group.
            **options: Those of the client that is returned; see `ClientOptions`.

        Returns:
            A client to be entered: `async with ClientGroup("mcp.json") as group, CodeMode().client(group) as client: …`.

        Raises:
            DefinitionError: An option is not allowed.
        """

        async def locate(ctx: Context[Any], tool: str) -> ToolOrigin:
            if isinstance(of, ClientGroup):
                server, name = of.origin(tool)
            else:
                info = of.discovery.server_info
                server, name = (info.name if info is not None else "server"), tool
            return ToolOrigin(server, name, self.trusts(server))

        async def forward(ctx: Context[Any], call_next: CallNext) -> Any:
            if ctx.method == "tools/list":
                return ListToolsResult(tools=list(await of.list_tools()))
            if ctx.method != "tools/call":
                return await call_next(ctx)
            params = ctx.decoded_params
            try:
                return await of.call_tool(params["name"], params.get("arguments"), raise_on_error=False)
            except CallError as exc:
                raise ToolError(str(exc)) from exc

        return Client(Server("tools", middleware=[CodeModeAround(self, locate), forward]), **options)

    async def __call__(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Raise DefinitionError: what runs is made for the server that this is added to.

        Args:
            ctx: The context of a message.
            call_next: The rest of the chain.
        """
        raise DefinitionError("CodeMode has to be added to a server: Server(…, middleware=[CodeMode()])")
