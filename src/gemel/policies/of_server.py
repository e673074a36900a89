"""A policy around a server: decides about calls and lists of its clients, of its handlers and of servers that mount it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from gemel.backends.keys import make_key
from gemel.backends.server_backend import ServerBackend
from gemel.decisions import approving
from gemel.errors import (
    BackendError,
    GemelError,
    InvalidArguments,
    InvalidParams,
    MissingClientCapability,
    NoSession,
    Overloaded,
    ProtocolError,
    ToolError,
)
from gemel.jsonrpc import ABSENT
from gemel.policies.decider import Decider
from gemel.policies.listing import (
    Listings,
    all_tools,
    annotations_of,
    by_schema,
    name_of,
    parameters_of,
    tools_of,
    with_tools,
)
from gemel.policies.question import FORM, Approver, approve, denial, granted, question, refusal
from gemel.policies.recording import note_span, record
from gemel.policies.request import NO_HINTS, PolicyRequest, hints_of
from gemel.policies.rounds import approved_round, with_approval
from gemel.policies.rules import Ruling
from gemel.policies.values import with_numbers, without_secrets
from gemel.protocol.eras.handshake import task_wish
from gemel.server.composition.mount import Catalog, ToolLocation
from gemel.server.composition.namespace import suggest
from gemel.server.context import Context, caller_key, served_call
from gemel.server.dispatch import CallNext
from gemel.server.elicitation.elicit import Declined
from gemel.server.features.tools import invalid_arguments
from gemel.server.features.visibility import require_scopes

logger = logging.getLogger("gemel")

#: Where a session keeps its approvals, and how many.
_KEY = "gemel.policy"
_MOST = 100
#: Seconds within which a task begins to run under the approval of its call.
_TASK_TTL = 3600.0


class _Owner(Protocol):
    """What a policy needs of its server."""

    catalog: Catalog
    backend: ServerBackend


class PolicyOfServer:
    """One policy in the middleware of one server."""

    def __init__(self, decider: Decider, server: _Owner) -> None:
        self._decider = decider
        self._server = server
        self._listings = Listings()
        #: The rules of which the log says that a client could not be asked.
        self._unasked: set[str] = set()

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Decide about a call, or leave tools out of a list."""
        if ctx.method == "tools/call" and ctx.request_id is not None:  # a notification of that name runs nothing
            return await self._call(ctx, call_next)
        result = await call_next(ctx)
        return await self._filtered(ctx, result) if ctx.method == "tools/list" else result

    # ---------------------------------------------------------------- lists

    async def _filtered(self, ctx: Context[Any], page: Any) -> Any:
        shown = [tool for tool in tools_of(page) if not await self._decider.hides(await self._listed(ctx, tool))]
        return with_tools(page, shown, private=self._decider.by_caller)

    async def _listed(self, ctx: Context[Any], tool: Any) -> PolicyRequest:
        """A tool of a list, for its caller."""
        name = name_of(tool)
        found = await self._server.catalog.locate_tool(ctx, name, behind=self)
        return self._request(ctx, name, found, tool)

    def _request(
        self,
        ctx: Context[Any],
        name: str,
        found: ToolLocation,
        listed: Any,
        arguments: Mapping[str, Any] | None = None,
        **call: Any,
    ) -> PolicyRequest:
        registered = None if found.tool is None or found.is_changed else found.tool.tool
        tool = registered or listed
        is_trusted = found.tool is not None or self._decider.trusts(found.server)
        hints = hints_of(annotations_of(tool)) if tool is not None and is_trusted else NO_HINTS
        parameters = parameters_of(tool)
        if parameters is not None and found.is_changed:  # `ToolChanges` may set arguments that the list doesn't show
            below = parameters_of(None if found.tool is None else found.tool.tool)
            parameters = None if below is None else parameters | below
        return PolicyRequest(
            tool=name,
            hints=hints,
            principal=ctx.principal,
            scopes=ctx.scopes,
            claims=ctx.claims,
            server=found.server,
            parameters=parameters,
            arguments=with_numbers(tool, arguments),
            shown=without_secrets(tool, arguments),
            **call,
        )

    async def _fetch(self, ctx: Context[Any], call_next: CallNext, *, as_handler: bool = False) -> dict[str, Any]:
        """All tools that are listed behind the policy, also those that it hides; for the client, or for a handler."""

        def list_page(params: dict[str, Any]) -> Any:
            page = ctx.replace(method="tools/list", params=params)
            page.depth += as_handler
            return call_next(page)

        return await all_tools(list_page)

    async def _find(self, ctx: Context[Any], call_next: CallNext, name: str) -> Any:
        """A tool as it is listed for this caller behind the policy; None for one that doesn't exist or is hidden there.

        Code mode lists few tools to clients, and all of them to handlers.
        """
        for as_handler in (False, True):
            caller = (caller_key(ctx), ctx.scopes, as_handler)
            fetch = partial(self._fetch, ctx, call_next, as_handler=as_handler)
            if (listed := await self._listings.find(caller, name, fetch)) is not None:
                return listed
        return None

    # ---------------------------------------------------------------- calls

    async def _call(self, ctx: Context[Any], call_next: CallNext) -> Any:
        params = ctx.decoded_params
        name, given = params.get("name"), params.get("arguments")
        given = {} if given is None else given
        sent = msgspec.Raw(msgspec.json.encode(given))
        if not isinstance(name, str):
            return await call_next(ctx)  # which is an error
        if not isinstance(given, Mapping):
            raise InvalidParams("arguments: expected an object")
        found = await self._server.catalog.locate_tool(ctx, name, behind=self)
        listed, invalid = None, None
        if found.tool is not None and not found.is_changed:
            try:
                if found.tool.has_pydantic:
                    found.tool.check_size(ctx, sent)
                arguments, inexact = found.tool.arguments.plain_from_json(sent), False
            except InvalidParams as exc:  # middleware may still make them valid
                invalid = exc
                arguments, inexact = by_schema(found.tool.tool, given, defaults=False)
        else:
            listed = await self._find(ctx, call_next, name)
            trusted = found.tool is not None or self._decider.trusts(found.server)
            arguments, inexact = by_schema(listed, given, defaults=trusted)
        request = self._request(ctx, name, found, listed, arguments, inexact=inexact, client=_client(ctx))
        ruling = await self._decider.decide(request)
        if ruling.effect == "deny" and await self._decider.hides(request):
            note_span(ruling)
            record(ruling)
            raise InvalidParams(await self._unknown(ctx, name, call_next))
        if ruling.effect != "allow" and (listed or await self._find(ctx, call_next, name)) is None:
            raise InvalidParams(await self._unknown(ctx, name, call_next))
        note_span(ruling)
        if ruling.effect == "ask":
            try:
                require_scopes(ctx, found.scopes)
                if found.tool is not None and not found.is_changed:
                    found.tool.check_headers(ctx, sent)
            except ProtocolError:
                record(ruling)
                raise
        if ruling.effect != "allow" and invalid is not None and found.tool is not None:
            record(ruling)
            if isinstance(invalid, InvalidArguments):
                return invalid_arguments(ctx, found.tool, name, sent, invalid)
            raise invalid
        is_known = found.tool is not None or listed is not None
        # What was judged is what goes on: members are there once, whatever a server elsewhere makes of repeated ones.
        params["arguments"] = given
        if ruling.effect == "allow":
            record(ruling)
            return await self._pass(ctx.replace(params=params), call_next, name, is_known=is_known)
        if ruling.effect == "deny":
            record(ruling)
            raise ToolError(denial(request, ruling))
        return await self._ask(
            ctx, params, request, ruling, lambda ctx: self._pass(ctx, call_next, name, is_known=is_known)
        )

    async def _pass(self, ctx: Context[Any], call_next: CallNext, name: str, *, is_known: bool) -> Any:
        """Pass a call on. The error for an unknown tool suggests only what its caller may know."""
        try:
            return await call_next(ctx)
        except InvalidParams as exc:
            unknown = f"Unknown tool: {suggest(served_call(ctx).layers, 'tools', name)}"
            if "Did you mean" not in str(exc) or (is_known and not str(exc).startswith(f"{unknown}. ")):
                raise
            raise InvalidParams(await self._unknown(ctx, name, call_next)) from None

    async def _unknown(self, ctx: Context[Any], name: str, call_next: CallNext) -> str:
        """The error for a tool that does not exist for this caller, or at all: both are the same."""
        tools = await self._fetch(ctx, call_next)
        shown = [known for known, tool in tools.items() if not await self._decider.hides(await self._listed(ctx, tool))]
        return f"Unknown tool: {suggest(served_call(ctx).layers, 'tools', name, shown)}"

    # ---------------------------------------------------------------- asking a person

    async def _ask(
        self, ctx: Context[Any], params: dict[str, Any], request: PolicyRequest, ruling: Ruling, pass_on: CallNext
    ) -> Any:
        """Pass the call on if somebody allows it. Raises ToolError if nobody does."""
        ruling = _as_remembered(ctx, ruling)
        digest, above = request.digest(ruling.key), granted.get()
        approved = record(ruling)
        earlier = await approved_round(ctx, params.pop("requestState", None), digest)
        if earlier is None:
            params.pop("inputResponses", None)  # they answer the policy
            by = above.get(digest) or await self._approval(ctx, request, ruling, digest)
            if by is None:
                raise ToolError(refusal(request))
        else:
            by = earlier.by
            if earlier.state is not None:
                params["requestState"] = earlier.state
        approved(by)
        if task_wish(ctx.protocol_version, ctx.params) is not ABSENT:
            await self._hand_over(digest, by)
        token = granted.set({**above, digest: by})
        try:
            result = await pass_on(ctx.replace(params=params))
        finally:
            granted.reset(token)
        return await with_approval(ctx, result, by, digest)

    async def _approval(self, ctx: Context[Any], request: PolicyRequest, ruling: Ruling, digest: str) -> str | None:
        by = await ctx.step(self._take, digest) if _in_task(ctx) else None
        by = by or await self._recall(ctx, digest, ruling)
        if by is not None:
            return by
        if self._decider.ask is not None:
            by = await self._by_function(ctx, self._decider.ask, request, digest)
        else:
            by = await self._elicit(ctx, request, ruling, question(request, ruling, digest))
        if by is not None:
            await self._remember(ctx, digest, ruling, by)
        return by

    async def _hand_over(self, digest: str, by: str) -> None:
        """Let the task that a call becomes run: its run passes the policy, too, maybe in another process."""
        try:
            await self._server.backend.set(make_key("policy-task", digest), by.encode(), ttl=_TASK_TTL)
        except (BackendError, Overloaded) as exc:
            logger.warning("An approval is asked for again in its task, since it can't be stored: %s", exc)

    async def _take(self, digest: str) -> str | None:
        """Who approved the call that became this task; once."""
        key = make_key("policy-task", digest)
        stored = await self._server.backend.get(key)
        return stored.decode() if stored is not None and await self._server.backend.delete(key) else None

    async def _by_function(
        self, ctx: Context[Any], approver: Approver, request: PolicyRequest, digest: str
    ) -> str | None:
        async def approval(digest: str) -> str | None:
            return await approve(approver, request)

        return await ctx.step(approval, digest)  # once over all rounds

    async def _elicit(self, ctx: Context[Any], request: PolicyRequest, ruling: Ruling, message: str) -> str | None:
        token = approving.set(True)
        try:
            answer = await ctx.elicit(message, FORM)
        except Declined:
            return None
        except MissingClientCapability as exc:
            by = ruling.rule or "default"
            if by not in self._unasked:
                self._unasked.add(by)
                logger.warning(
                    "The policy asks before %s is called (%s), and a client can't be asked: it has no forms. "
                    "Server(ask=AskByPage(…)) asks authenticated users on a web page",
                    request.tool,
                    by,
                )
            purpose = f"by which the policy asks before {request.tool} is called ({by})"
            raise MissingClientCapability(exc.required, purpose) from None
        finally:
            approving.reset(token)
        return (ctx.principal or "the user") if answer.get("allow") is True else None

    async def _recall(self, ctx: Context[Any], digest: str, ruling: Ruling) -> str | None:
        """Who approved the same call before, as far as that still counts."""
        if ruling.remember == "call":
            return None
        try:
            if isinstance(ruling.remember, float) and ctx.principal is not None:
                stored = await self._server.backend.get(make_key("policy", digest))
                return None if stored is None else stored.decode()
            entry = (await ctx.session_state.get(_KEY, dict[str, _Approval], {})).get(digest)
        except (GemelError, UnicodeDecodeError) as exc:
            logger.warning("The approvals of a policy can't be read: %s", exc)
            return None
        if entry is None or entry.ends is None:
            return None if entry is None else entry.by
        # One that lasts longer than the rule says was given before the clock was set back.
        left, most = entry.ends - time.time(), ruling.remember if isinstance(ruling.remember, float) else 0.0
        return entry.by if 0 < left <= most else None

    async def _remember(self, ctx: Context[Any], digest: str, ruling: Ruling, by: str) -> None:
        remember = ruling.remember
        if remember == "call":
            return
        try:
            if isinstance(remember, float) and ctx.principal is not None:
                await self._server.backend.set(make_key("policy", digest), by.encode(), ttl=remember)
                return
            entry = _Approval(by, time.time() + remember if isinstance(remember, float) else None)

            def add(known: dict[str, _Approval]) -> dict[str, _Approval]:
                kept = {key: one for key, one in known.items() if one.ends is None or one.ends > time.time()}
                kept.pop(digest, None)
                return dict([*kept.items(), (digest, entry)][-_MOST:])

            await ctx.session_state.update(_KEY, add, dict[str, _Approval], {})
        except (BackendError, Overloaded, GemelError) as exc:
            logger.warning("An approval counts for this call only, since it can't be stored: %s", exc)


class _Approval(msgspec.Struct, array_like=True):
    """Who approved a call, and until when that counts, in seconds since 1970; None for the whole session."""

    by: str
    ends: float | None = None


def _as_remembered(ctx: Context[Any], ruling: Ruling) -> Ruling:
    """The ruling as it counts for a caller: without a session, and without a name for a time, an approval is for the call."""
    if ruling.remember == "call" or (isinstance(ruling.remember, float) and ctx.principal is not None):
        return ruling
    try:
        ctx.session_state  # noqa: B018 - raises NoSession
    except NoSession:
        return ruling._replace(remember="call")
    return ruling


def _in_task(ctx: Context[Any]) -> bool:
    return served_call(ctx).session.channel.kind == "background"


def _client(ctx: Context[Any]) -> str | None:
    """The client that was authenticated, otherwise the name that it gives itself."""
    caller, info = ctx.caller, ctx.client_info
    if caller is not None and caller.client is not None:
        return caller.client
    return None if info is None else info.name
