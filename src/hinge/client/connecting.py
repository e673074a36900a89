"""Opening a conversation: runs the decisions of `negotiate` over a session, with time limits and no race on a slow server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import msgspec

from hinge.client.negotiate import MODERN_ERRORS, Answer, Discovery, Handshake, Probe, negotiate
from hinge.errors import CallError, CallTimeout
from hinge.protocol import era_2026, http
from hinge.protocol.events import EraName
from hinge.protocol.shape import shape
from hinge.schema.base import Implementation
from hinge.schema.lifecycle import ClientCapabilities, InitializeParams
from hinge.session import Session

MakeSpan = Callable[[str, Mapping[str, Any], object], AbstractContextManager[dict[str, str]]]


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """Who the client is, what it can do, which era it wants, and what it knows of the server from before.

    `extensions` gives the settings of the extensions that it declares in an era.
    """

    info: Implementation
    capabilities: ClientCapabilities
    era: EraName | Literal["auto"] = "auto"
    saved: Discovery | None = None
    extensions: Callable[[EraName], dict[str, dict[str, Any]]] = lambda era: {}

    def capabilities_in(self, era: EraName) -> ClientCapabilities:
        """What is declared in an era (EXT-01, EXT-03)."""
        extensions = self.extensions(era)
        if not extensions:
            return self.capabilities
        return msgspec.structs.replace(
            self.capabilities, extensions={**(self.capabilities.extensions or {}), **extensions}
        )


class Opening:
    """One attempt to agree with a server over a session that is open already."""

    def __init__(self, session: Session, introduction: Introduction, span: MakeSpan) -> None:
        self._session = session
        self._span = span
        self._introduction = introduction
        self._info = introduction.info
        #: A probe that got no answer yet: on a pipe it may still come (a slow server).
        self._probe: asyncio.Task[Answer] | None = None

    async def agree(self, era: EraName | Literal["auto"]) -> Discovery:
        """Negotiate to the end. Raises ConnectFailed, or the transport's own error when it says nothing about the era."""
        steps = negotiate(era)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._take(step))
        except StopIteration as done:
            found: Discovery = done.value
            return found
        finally:
            if self._probe is not None:
                self._probe.cancel()
                await asyncio.wait([self._probe])

    async def _take(self, step: Probe | Handshake) -> Answer:
        if isinstance(step, Probe):
            return await self._discover(step.revision, only=step.only)
        return await self._initialize(step.revision)

    async def _discover(self, revision: str, *, only: bool) -> Answer:
        if self._probe is not None:
            self._probe.cancel()  # the new one will do
        meta = era_2026.request_meta(revision, self._info, self._introduction.capabilities_in("2026"))
        on_http = self._session.channel.kind == "post"
        headers = http.request_headers("server/discover", None, revision) if on_http else None
        asking = asyncio.create_task(self._ask("server/discover", {"_meta": meta}, headers, "discover"))
        if on_http or only:
            return await _own(asking)
        await asyncio.wait([asking], timeout=self._session.connection.limits.probe)
        if asking.done():
            return asking.result()
        self._probe = asking
        return Answer("discover")

    async def _initialize(self, revision: str) -> Answer:
        capabilities = self._introduction.capabilities_in("2025")
        mine = InitializeParams(protocol_version=revision, capabilities=capabilities, client_info=self._info)
        params = shape(mine, revision)
        asking = asyncio.create_task(self._ask("initialize", params, None, "initialize"))
        if self._probe is None:
            return await _own(asking)
        probe = self._probe
        try:
            done, _ = await asyncio.wait([asking, probe], return_when=asyncio.FIRST_COMPLETED)
            if asking in done or not _modern(probe.result()):
                return await _own(asking)
        except BaseException:
            asking.cancel()
            raise
        self._probe = None
        asking.cancel()
        await asyncio.wait([asking])
        return probe.result()

    async def _ask(self, method: str, params: Any, headers: Any, to: Literal["discover", "initialize"]) -> Answer:
        try:
            pending = self._session.ask(method)
            with self._span(method, {}, pending.id) as trace:
                if trace:
                    params = msgspec.to_builtins(params)
                    params["_meta"] = {**params.get("_meta", {}), **trace}
                return Answer(to, result=await self._session.exchange(pending, params, headers=headers))
        except CallTimeout:
            return Answer(to)
        except CallError as exc:
            return Answer(to, error=exc)


async def _own(task: asyncio.Task[Answer]) -> Answer:
    """Wait for a task that is ours alone: it ends with us."""
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        raise


def _modern(answer: Answer) -> bool:
    """Whether a late answer to the probe shows a modern server."""
    if answer.error is not None:
        return getattr(answer.error, "code", None) in MODERN_ERRORS
    return answer.result is not None
