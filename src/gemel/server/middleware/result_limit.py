"""Limit on the size of results, as middleware. Results of tools that are too long can be kept as pages."""

from __future__ import annotations

import logging
import re
import secrets
import time
import weakref
from collections.abc import Collection
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET, structs

from gemel.backends.base import Backend
from gemel.backends.server_backend import ServerBackend
from gemel.errors import BackendError, DefinitionError, InternalError, MethodNotFound, Overloaded
from gemel.options import METHOD_NAMES, Check, check_values, or_none, whole
from gemel.protocol.eras.base import OPEN_STATES
from gemel.protocol.http.headers import judge_name
from gemel.protocol.revisions.adapt import known_in
from gemel.schema.content import ResourceContents, ResourceLink, TextContent
from gemel.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    ResourceTemplate,
)
from gemel.schema.tools import CallToolResult
from gemel.server.context import Context, served_call
from gemel.server.dispatch import CallNext
from gemel.server.middleware.repeated_text import same_json
from gemel.server.middleware.result_pages import BackendPages, KeptPage, MemoryPages, PageStore, Parts, Spill, divide
from gemel.session import Session
from gemel.values.encoding import encode_value, plain_value

logger = logging.getLogger("gemel")

_OPTIONS = {
    "size": whole(1)._replace(advice="use bytes, 1 or more"),
    "methods": METHOD_NAMES,
    "backend": or_none(Check(lambda value: callable(getattr(value, "touch", None)), "write backend=server.backend")),
    "spill": Check(lambda value: isinstance(value, bool | Spill), "use True, False or Spill(expires=…, bytes=…)"),
}
#: What notes, links and the envelope of an answer or a page need, in bytes of JSON.
_ENVELOPE = 1000
_LEAST = 2 * _ENVELOPE
#: Links to images and files in one answer; the note says how many pages there are.
_MAX_LINKS = 10

_SCHEME = "result://"
_URI = re.compile(_SCHEME + r"([0-9a-f]{32})/([1-9][0-9]{0,8})")
_TEMPLATE = ResourceTemplate(
    uri_template=_SCHEME + "{key}/{page}",
    name="result_pages",
    title="Pages of long results",
    description="Pages of a tool's result that was too long. The result has the link to the first one.",
)


class ResultLimit:
    """Middleware that limits the size of results: `server.add_middleware(ResultLimit(1_000_000))`.

    A tool call whose result is too large fails with a text that tells the model to ask for less; other methods fail with an
    internal error. Each measured result is encoded twice.

    With `spill` a tool's result is kept instead. The answer has its beginning, a note with the sizes, and a `resource_link`
    to the first page of the rest; the last part of its URI is the number of the page. Who reads a page must have the
    principal of the call, or without one the session; over HTTP without either, the URI alone is the key, of 128 random
    bits. Structured content stays whole if it leaves a quarter of the limit to the text. Otherwise it is kept in pages, too,
    and the answer is marked as an error: a part would not fit the output schema, and clients refuse a success without it.

    Args:
        size: The limit in bytes of JSON, 1 or more; with `spill` 2000 or more. Pages of text have this size, too.
        methods: The methods whose results are measured.
        spill: Whether results of tools are kept in pages; a `Spill` says how long and how many.
        backend: Where pages are kept. Default: in the backend of the server if other processes share it, else in this
            process.

    Raises:
        DefinitionError: A value out of range.
    """

    #: What its user calls it, in errors.
    _keeper = "ResultLimit"

    def __init__(
        self,
        size: int,
        *,
        methods: Collection[str] = ("tools/call",),
        spill: bool | Spill = False,
        backend: Backend | None = None,
    ) -> None:
        check_values(locals(), _OPTIONS)
        if spill is not False and size < _LEAST:
            raise DefinitionError(f"size={size} is not possible: with spill use {_LEAST} bytes or more")
        self.size = size
        #: How results are kept; None if they are not.
        self.spill = (Spill() if spill is True else spill) or None
        self._methods = frozenset(methods)
        self._pages: PageStore | None = None
        if self.spill is not None:
            self._pages = (
                MemoryPages(self.spill, time.monotonic)
                if backend is None
                else BackendPages(backend, self.spill, time.monotonic)
            )
        #: Whether other processes find the pages.
        self.shared = backend is not None and backend.shared
        #: What stands for a session in the pages that belong to it.
        self._sessions: weakref.WeakKeyDictionary[Session, str] = weakref.WeakKeyDictionary()

    def use_backend(self, backend: ServerBackend, /) -> None:
        """Keep pages under the name of the server, which calls this. The first server counts.

        Args:
            backend: That of the server.
        """
        if isinstance(self._pages, BackendPages):
            self._pages.use_backend(backend)
        elif self.spill is not None and backend.shared:
            self._pages, self.shared = BackendPages(backend, self.spill, time.monotonic), True

    @property
    def not_shared(self) -> str:
        """The pages of results that are kept, without a backend."""
        return f"the pages of long results that {self._keeper} keeps" if isinstance(self._pages, MemoryPages) else ""

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Serve the request and measure the result.

        Args:
            ctx: The context of the request.
            call_next: The rest of the chain.

        Returns:
            The result, or the result of a failed tool call in its place, or its beginning.

        Raises:
            InternalError: The result of another method is too large.
        """
        if self._pages is None or not ctx.method.startswith("resources/"):
            result = await call_next(ctx)
        elif ctx.method == "resources/read" and (contents := await self._read(ctx)) is not None:
            return ReadResourceResult(contents=[contents])
        else:
            result = await _resources(ctx, call_next)
        if ctx.method not in self._methods or ctx.request_id is None:
            return result
        text = encode_value(result)
        if len(text) <= self.size:
            return result
        if ctx.method == "tools/call" and (shortened := await self._shortened(ctx, text)) is not None:
            return shortened
        logger.warning("%s: rejected a result of %d bytes, the limit is %d", ctx.method, len(text), self.size)
        advice = f"The result has {len(text)} bytes, more than the limit of {self.size}: ask for less"
        if ctx.method == "tools/call":
            return CallToolResult(content=[TextContent(text=advice)], is_error=True)
        raise InternalError(advice)

    @property
    def keeps_resources(self) -> bool:
        """Whether results are kept in pages."""
        return self.spill is not None

    async def keeps(self, uri: str) -> bool:
        """Whether a URI names a page that is kept here, whoever may read it.

        Args:
            uri: The URI.

        Returns:
            Whether there is such a page.
        """
        return await self._page(uri) is not None

    # ---------------------------------------------------------------- keeping

    async def _shortened(self, ctx: Context[Any], text: bytes) -> CallToolResult | None:
        """The beginning of a result, whose other pages are kept. None if it can't be kept."""
        if self._pages is None or self.spill is None:
            return None
        try:
            result = msgspec.json.decode(text, type=CallToolResult)
        except (msgspec.MsgspecError, RecursionError):
            return None
        room = self.size - _ENVELOPE
        meta = result.meta
        if meta is not None:
            needed = len(msgspec.json.encode(meta))
            meta, room = (meta, room - needed) if needed <= self.size // 4 else (None, room)
        content, structured = result.content, result.structured_content
        if not known_in(CallToolResult, "structured_content", ctx.protocol_version):
            structured = UNSET
        left_out = False
        if structured is not UNSET:
            written = msgspec.json.encode(structured)
            left_out = len(written) > room - self.size // 4
            if not left_out:
                room -= len(written)
            elif not any(isinstance(block, TextContent) and same_json(block.text, structured) for block in content):
                content = [*content, TextContent(text=written.decode())]
        parts = divide(content, room, self.size - _ENVELOPE)
        key, owner = secrets.token_hex(16), self._owner(ctx)
        pages = [KeptPage(owner, one.mime_type, one.text, one.blob) for one in parts.pages]
        try:
            holder = served_call(ctx).call.origin.holder
            if not await self._pages.put(key, list(map(msgspec.msgpack.encode, pages)), holder):
                return None
        except (BackendError, Overloaded) as exc:
            logger.warning("%s: a result could not be kept: %s", ctx.method, exc)
            return None
        logger.info("%s: kept a result of %d bytes in %d pages", ctx.method, len(text), len(pages))
        note = TextContent(text=self._note(len(text), parts, self.spill.expires, left_out=left_out))
        return CallToolResult(
            content=[*parts.sent, note, *_links(key, parts)],
            structured_content=UNSET if left_out else structured,
            is_error=result.is_error or left_out,
            meta=meta,
        )

    def _note(self, size: int, parts: Parts, expires: float, *, left_out: bool) -> str:
        """What the model and people read about it, without URIs: those get a prefix where the server is mounted."""
        count = len(parts.pages)
        kept = f"{parts.size:,} bytes of text" if parts.texts else ""
        if blobs := count - parts.texts:
            kept += f"{' and ' if kept else ''}{_counted(blobs, 'image or file', 'images or files')}"
        reason = "It counts as an error only because structured content can't be shortened. " if left_out else ""
        return (
            f"[This is the beginning of a result of {size:,} bytes, more than the limit of {self.size:,}. {reason}"
            f"Left out: {kept}, in {_counted(count, 'page', 'pages')} that can be read for {_duration(expires)}: "
            f"read the linked resource, whose URI ends in the number of the page (1 to {count}), or ask for less.]"
        )

    def _owner(self, ctx: Context[Any]) -> str:
        """Who may read a page: a principal, else a session. Empty for a POST without both: whoever knows the URI."""
        if (owner := served_call(ctx).call.origin.owner) is not None:
            return f"principal {msgspec.json.encode(owner).decode()}"
        session = served_call(ctx).session
        if session.channel.kind == "post":
            return ""
        if isinstance(session_id := getattr(session.channel, "id", None), str):  # other processes serve it, too
            return f"session {sha256(session_id.encode()).hexdigest()}"
        return self._sessions.setdefault(session, f"session {secrets.token_hex(16)}")

    # ---------------------------------------------------------------- reading

    async def _read(self, ctx: Context[Any]) -> ResourceContents | None:
        """The contents of a page; None for another resource, and for what belongs to somebody else."""
        if _SCHEME.encode() not in bytes(ctx.params):
            return None
        uri = ctx.decoded_params.get("uri")
        if not isinstance(uri, str) or (page := await self._page(uri)) is None:
            return None
        if page.owner not in ("", self._owner(ctx)) or not _is_admitted(ctx, uri):
            return None
        return ResourceContents(uri=uri, text=page.text, blob=page.blob, mime_type=page.mime_type)

    async def _page(self, uri: str) -> KeptPage | None:
        match = _URI.fullmatch(uri)
        if self._pages is None or match is None:
            return None
        data = await self._pages.get(match[1], int(match[2]))
        return None if data is None else msgspec.msgpack.decode(data, type=KeptPage)


def _is_admitted(ctx: Context[Any], uri: str) -> bool:
    """Whether the handler of the method would get the request: after the handshake, with fitting headers."""
    call, connection = served_call(ctx).call, served_call(ctx).session.connection
    if call.era.needs_handshake(ctx.method) and connection.handshake.state not in OPEN_STATES:
        return False
    if call.origin.head is not None and call.era.mirrors_requests(over_http=True) and ctx.params is call.params:
        judge_name(call.origin.head, uri)
    return True


async def _resources(ctx: Context[Any], call_next: CallNext) -> Any:
    """Serve a request for resources; the list of templates has one for pages, which tells gateways where they are."""
    try:
        result = await call_next(ctx)
    except MethodNotFound:  # a proxy of a server without resources
        if ctx.method == "resources/list":
            return ListResourcesResult(resources=[])
        if ctx.method != "resources/templates/list":
            raise
        result = ListResourceTemplatesResult(resource_templates=[])
    return _with_template(result) if ctx.method == "resources/templates/list" else result


def _links(key: str, parts: Parts) -> list[ResourceLink]:
    """A link to the first page of text, and one to each image or file."""
    count = len(parts.pages)
    numbers = [*([1] if parts.texts else []), *range(parts.texts + 1, count + 1)]
    return [
        ResourceLink(
            uri=f"{_SCHEME}{key}/{number}",
            name=f"page {number}",
            description=f"Page {number} of {count}",
            mime_type=parts.pages[number - 1].mime_type,
        )
        for number in numbers[:_MAX_LINKS]
    ]


def _with_template(result: object) -> Any:
    """The last page of a list of templates with that of pages, unless there is one already.

    The page or single templates may be JSON objects: what a proxy passes on.
    """
    members = plain_value(result)
    try:
        page = msgspec.convert(members, ListResourceTemplatesResult)
    except msgspec.ValidationError:
        return result
    if page.next_cursor is not None or any(
        one.uri_template == _TEMPLATE.uri_template for one in page.resource_templates
    ):
        return result
    if isinstance(result, ListResourceTemplatesResult):
        return structs.replace(result, resource_templates=[*result.resource_templates, _TEMPLATE])
    return {**members, "resourceTemplates": [*members["resourceTemplates"], msgspec.to_builtins(_TEMPLATE)]}


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _duration(seconds: float) -> str:
    return f"{seconds:g} seconds" if seconds < 60 else _counted(round(seconds / 60), "minute", "minutes")
