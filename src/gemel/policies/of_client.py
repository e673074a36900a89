"""A policy around a client: decides about the calls that its application sends, and asks the user of the client."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from gemel.client.client import Client
from gemel.client.methods import CallNext, ClientContext, ClientMethods
from gemel.decisions import approving
from gemel.errors import ProtocolError
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
from gemel.policies.question import FORM, approve, denial, question, refusal
from gemel.policies.recording import record
from gemel.policies.request import NO_HINTS, PolicyRequest, hints_of
from gemel.policies.rules import Ruling
from gemel.policies.values import with_numbers, without_secrets
from gemel.schema.content import TextContent
from gemel.schema.elicitation import ElicitFormParams
from gemel.schema.tools import CallToolResult, ListToolsResult
from gemel.server.composition.namespace import suggest
from gemel.values.encoding import encode_value, plain_value

_MOST = 1000


class PolicyOfClient:
    """One policy in the middleware of one client. `server` is the name of its server, if the application gave one."""

    def __init__(self, decider: Decider, client: ClientMethods, server: str | None) -> None:
        self._decider = decider
        self._client = client
        self._server = server
        self._listings = Listings()
        #: Who approved a call and until when that counts, None as long as the connection, by the digest of the request.
        self._approvals: OrderedDict[str, tuple[str, float | None]] = OrderedDict()

    async def connected(self, client: ClientMethods, /) -> None:
        """Forget what belongs to the connection before: its lists, and approvals for the session."""
        self._listings.forget()
        for digest in [digest for digest, (_, ends) in self._approvals.items() if ends is None]:
            del self._approvals[digest]

    async def __call__(self, ctx: ClientContext, call_next: CallNext) -> Any:
        """Decide about a call, or leave tools out of a list."""
        if ctx.inbound:
            if ctx.method == "notifications/tools/list_changed":
                self._listings.forget()
            return await call_next(ctx)
        if ctx.method == "tools/call":
            return await self._call(ctx, call_next)
        result = await call_next(ctx)
        if ctx.method != "tools/list":
            return result
        shown = [tool for tool in tools_of(result) if not await self._decider.hides(self._request(name_of(tool), tool))]
        return with_tools(result, shown, private=False)

    def _request(
        self, name: str, listed: Any, arguments: Mapping[str, Any] | None = None, **call: Any
    ) -> PolicyRequest:
        is_trusted = listed is not None and self._decider.trusts(self._server)
        hints = hints_of(annotations_of(listed)) if is_trusted else NO_HINTS
        return PolicyRequest(
            tool=name,
            hints=hints,
            server=self._server,
            parameters=parameters_of(listed),
            arguments=with_numbers(listed, arguments),
            shown=without_secrets(listed, arguments),
            **call,
        )

    async def _fetch(self, ctx: ClientContext, call_next: CallNext) -> dict[str, Any]:
        def list_page(params: dict[str, Any]) -> Any:
            page = ctx.replace(method="tools/list", params=params, meta=None)
            page.result, page.accepts, page.safe = ListToolsResult, (), None
            page.on_progress = page.on_size = None
            return call_next(page)

        return await all_tools(list_page)

    async def _call(self, ctx: ClientContext, call_next: CallNext) -> Any:
        name = ctx.params.get("name")
        # Arguments may be any values, and are judged as what they become.
        given = plain_value(ctx.params.get("arguments") or {})
        if not isinstance(name, str) or not isinstance(given, Mapping):
            return _failure(ctx, "The policy allows only calls with a name and an object of arguments.")
        listed = await self._listings.find(ctx.caller, name, lambda: self._fetch(ctx, call_next))
        trusted = self._decider.trusts(self._server)
        arguments, inexact = by_schema(listed, given, defaults=trusted)
        request = self._request(name, listed, arguments, inexact=inexact)
        ruling = await self._decider.decide(request)
        if ruling.effect == "ask" and listed is None:
            return _failure(ctx, await self._unknown(ctx, call_next, name))
        approved = record(ruling)
        if ruling.effect == "deny":
            return _failure(ctx, denial(request, ruling, always=await self._decider.hides(request)))
        if ruling.effect == "ask":
            try:
                by = await self._approval(request, ruling)
            except ProtocolError:  # nobody can be asked
                return _failure(
                    ctx,
                    f"The policy asks before {name} is called, and this client has neither on_elicit nor Policy(ask=…).",
                )
            if by is None:
                return _failure(ctx, refusal(request))
            approved(by)
        return await call_next(ctx.replace(params={**ctx.params, "arguments": given}))

    async def _unknown(self, ctx: ClientContext, call_next: CallNext, name: str) -> str:
        """The error for a tool that the server doesn't list: nobody is asked about it."""
        tools = await self._fetch(ctx, call_next)
        shown = [one for one, tool in tools.items() if not await self._decider.hides(self._request(one, tool))]
        return f"Unknown tool: {suggest((), 'tools', name, shown)}"

    async def _approval(self, request: PolicyRequest, ruling: Ruling) -> str | None:
        """Who approves the call, or did; None for nobody. Raises ProtocolError if there is no way to ask."""
        digest = request.digest(ruling.key)
        by, ends = self._approvals.get(digest, ("", None))
        if by and (ends is None or ends > time.monotonic()):
            return by
        answered = (
            await self._elicit(question(request, ruling, digest))
            if self._decider.ask is None
            else await approve(self._decider.ask, request)
        )
        if answered is not None and ruling.remember != "call":
            remember = ruling.remember
            self._approvals.pop(digest, None)
            self._approvals[digest] = answered, time.monotonic() + remember if isinstance(remember, float) else None
            if len(self._approvals) > _MOST:
                self._approvals.popitem(last=False)
        return answered

    async def _elicit(self, message: str) -> str | None:
        assert isinstance(self._client, Client)
        params = ElicitFormParams(message=message, requested_schema=dict(FORM))
        token = approving.set(True)
        try:
            answer = await self._client.callbacks.answer("elicitation/create", encode_value(params))
        finally:
            approving.reset(token)
        given = plain_value(answer)
        content = given.get("content") if isinstance(given, Mapping) and given.get("action") == "accept" else None
        return "the user" if isinstance(content, Mapping) and content.get("allow") is True else None


def _failure(ctx: ClientContext, text: str) -> Any:
    """A result with `isError`, of the type that the caller expects."""
    result: CallToolResult[Any] = CallToolResult(content=[TextContent(text=text)], is_error=True)
    return result if ctx.result is CallToolResult else msgspec.json.decode(encode_value(result))
