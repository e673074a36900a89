"""Resources: listing them, finding the one that a URI names, reading it. Knows no era, no channels and no files."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hinge.errors import DefinitionError, InvalidParams, ResourceNotFound, shorten
from hinge.schema.base import PageParams
from hinge.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from hinge.server.completion import Completer
from hinge.server.context import Context
from hinge.server.pages import paginate
from hinge.server.resource import Exists, RegisteredResource, ResourceFunction, ResourceOptions, define_resource
from hinge.server.threads import Threads
from hinge.server.uri_matching import Matched

#: A longer URI names nothing here.
MAX_URI = 65_536

#: A scheme, and no control characters (RES-09); blanks and letters of all scripts pass, as models write them.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[^\x00-\x1f\x7f]*")


class Resources:
    """The resources of one server. `limit` is in bytes, for a resource that a function gives in chunks.

    A URI without variables is found first. Templates come after it, the most specific first: those without `{+x}` and
    `{/x*}` before those with, then those with more literal text, then those with fewer variables, then in the order of
    registration. The first template that the URI fits is the one: when its values don't fit their types, that is an
    error that names them (-32602), and no other template is tried.
    """

    def __init__(
        self,
        threads: Threads,
        changed: Callable[[], None],
        completers: dict[str, dict[str, Completer]],
        page_size: int | None,
        limit: int,
    ) -> None:
        self._entries: dict[str, RegisteredResource] = {}
        self._exists: dict[str, Exists] = {}
        self._threads = threads
        self._changed = changed
        self._completers = completers
        self._page_size = page_size
        self._limit = limit
        self._templates: list[RegisteredResource] = []
        self._listed: list[Resource] = []
        self._listed_templates: list[ResourceTemplate] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self, uri: str, function: ResourceFunction, options: ResourceOptions, *, exists: Exists | None = None
    ) -> RegisteredResource:
        """Register a function under a URI or template.

        `exists` tells of the arguments of a template whether there is something to watch. Raises DefinitionError.
        """
        entry = define_resource(uri, function, options, threads=self._threads, limit=self._limit)
        if uri in self._entries:
            raise DefinitionError(
                f"There is a resource {uri!r} already: give this one another URI, or remove the first"
            )
        self._entries[uri] = entry
        if exists is not None:
            self._exists[uri] = exists
        self._completers[uri] = {}
        self._change()
        return entry

    def remove(self, uri: str) -> None:
        """Take away a URI or template. Raises KeyError when there is none such."""
        del self._entries[uri]
        self._exists.pop(uri, None)
        self._completers.pop(uri, None)
        self._change()

    def _change(self) -> None:
        ranked = [(entry.rank, entry) for entry in self._entries.values() if entry.rank is not None]
        self._templates = [entry for _, entry in sorted(ranked, key=lambda pair: pair[0])]
        listings = [entry.listing for entry in self._entries.values()]
        self._listed = [item for item in listings if isinstance(item, Resource)]
        self._listed_templates = [item for item in listings if isinstance(item, ResourceTemplate)]
        self._changed()

    async def list(self, ctx: Context[Any], params: PageParams) -> ListResourcesResult:
        """`resources/list`, in the order of registration."""
        page, cursor = paginate(self._listed, params.cursor, self._page_size)
        return ListResourcesResult(resources=page, next_cursor=cursor)

    async def list_templates(self, ctx: Context[Any], params: PageParams) -> ListResourceTemplatesResult:
        """`resources/templates/list`, in the order of registration (RES-03)."""
        page, cursor = paginate(self._listed_templates, params.cursor, self._page_size)
        return ListResourceTemplatesResult(resource_templates=page, next_cursor=cursor)

    async def read(self, ctx: Context[Any], params: ReadResourceParams) -> ReadResourceResult:
        """`resources/read`. A URI that names nothing is ResourceNotFound; the era knows its code (RES-05, RES-06)."""
        found = self._find(params.uri)
        if found is None:
            raise ResourceNotFound(params.uri)
        entry, values = found
        return await entry.read(ctx, params, values, self._threads)

    async def known(self, ctx: Context[Any], uri: str) -> bool:
        """Whether a URI names a resource of this server: who may be told of its changes when nobody else decides."""
        try:
            found = self._find(uri)
            if found is None:
                return False
            entry, values = found
            arguments = entry.arguments(values)
        except InvalidParams:
            return False
        exists = self._exists.get(entry.uri)
        return exists is None or bool(await self._threads.run(exists, arguments))

    def _find(self, uri: str) -> tuple[RegisteredResource, Matched] | None:
        """The resource that a URI names, with the values of its variables. Raises InvalidParams for what is no URI."""
        entry = self._entries.get(uri)
        if entry is not None and entry.rank is None:
            return entry, {}
        if len(uri) > MAX_URI or _URI.fullmatch(uri) is None:
            problem = f"longer than {MAX_URI} characters" if len(uri) > MAX_URI else "no scheme, or control characters"
            raise InvalidParams(f"Invalid URI: {problem}", {"uri": shorten(uri, 2048)})
        for entry in self._templates:
            values = entry.match(uri)
            if values is not None:
                return entry, values
        return None
