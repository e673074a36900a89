"""Resources: listing them, finding the one that a URI names, reading it. Knows no era, no channels and no files."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

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
from hinge.server.completion import RegisteredCompleter, of_choices
from hinge.server.context import Context
from hinge.server.pages import paginate
from hinge.server.resource import Exists, RegisteredResource, ResourceFunction, ResourceOptions, define_resource
from hinge.server.threads import Threads
from hinge.server.uri_matching import Matched
from hinge.server.visibility import Shelf, Visibility

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
        visibility: Visibility,
        changed: Callable[[], None],
        completers: dict[str, dict[str, RegisteredCompleter]],
        page_size: int | None,
        limit: int,
    ) -> None:
        self._shelf: Shelf[RegisteredResource] = visibility.shelf(changed)
        self._exists: dict[str, Exists] = {}
        self._threads = threads
        self._completers = completers
        self._page_size = page_size
        self._limit = limit
        self._templates: list[RegisteredResource] = []
        self._listed = _Split([])

    def __len__(self) -> int:
        return len(self._shelf.entries)

    def add(
        self, uri: str, function: ResourceFunction, options: ResourceOptions, *, exists: Exists | None = None
    ) -> RegisteredResource:
        """Register a function under a URI or template.

        `exists` tells of the arguments of a template whether there is something to watch. Raises DefinitionError.
        """
        entry = define_resource(uri, function, options, threads=self._threads, limit=self._limit)
        if uri in self._shelf.entries:
            raise DefinitionError(
                f"There is a resource {uri!r} already: give this one another URI, or remove the first"
            )
        self._completers[uri] = of_choices(entry.signature)
        self.adopt(uri, entry, exists)
        return entry

    def adopt(self, uri: str, entry: RegisteredResource, exists: Exists | None) -> None:
        """Take in an entry that was defined before, under a URI or template that is free."""
        if exists is not None:
            self._exists[uri] = exists
        self._templates = self._ranked(entry, *self._templates)
        self._shelf.add(uri, entry)

    def existence(self, uri: str) -> Exists | None:
        """What tells of the arguments of a template whether there is something to watch, if anything does."""
        return self._exists.get(uri)

    def remove(self, uri: str) -> None:
        """Take away a URI or template. Raises KeyError when there is none such."""
        entry = self._shelf.entries[uri]
        self._exists.pop(uri, None)
        self._completers.pop(uri, None)
        self._templates = [one for one in self._templates if one is not entry]
        self._shelf.remove(uri)

    def _ranked(self, new: RegisteredResource, *others: RegisteredResource) -> list[RegisteredResource]:
        """The most specific template first; equal ones in the order of registration."""
        ranked = [(entry.rank, entry) for entry in (*others, new) if entry.rank is not None]
        return [entry for _, entry in sorted(ranked, key=lambda pair: pair[0])]

    def _seen(self, ctx: Context[Any]) -> _Split:
        """What this caller sees of both lists."""
        listings = self._shelf.listings(ctx)
        if listings is not self._listed.whole:
            self._listed = _Split(listings)
        return self._listed

    def _scope(self) -> Any:
        """What depends on the caller is for him alone."""
        return "private" if self._shelf.varying else UNSET

    async def list(self, ctx: Context[Any], params: PageParams) -> ListResourcesResult:
        """`resources/list`, in the order of registration."""
        page, cursor = paginate(self._seen(ctx).resources, params.cursor, self._page_size)
        return ListResourcesResult(resources=page, next_cursor=cursor, cache_scope=self._scope())

    async def list_templates(self, ctx: Context[Any], params: PageParams) -> ListResourceTemplatesResult:
        """`resources/templates/list`, in the order of registration (RES-03)."""
        page, cursor = paginate(self._seen(ctx).templates, params.cursor, self._page_size)
        return ListResourceTemplatesResult(resource_templates=page, next_cursor=cursor, cache_scope=self._scope())

    async def read(self, ctx: Context[Any], params: ReadResourceParams) -> ReadResourceResult:
        """`resources/read`. A URI that names nothing is ResourceNotFound; the era knows its code (RES-05, RES-06)."""
        found = self._find(ctx, params.uri)
        if found is None:
            raise ResourceNotFound(params.uri)
        entry, values = found
        return await entry.read(ctx, params, values, self._threads)

    async def known(self, ctx: Context[Any], uri: str) -> bool:
        """Whether a URI names a resource of this server: who may be told of its changes when nobody else decides."""
        try:
            found = self._find(ctx, uri)
            if found is None:
                return False
            entry, values = found
            arguments = entry.arguments(ctx, values)
        except InvalidParams:
            return False
        exists = self._exists.get(entry.uri)
        return exists is None or bool(await self._threads.run(exists, arguments))

    def has(self, ctx: Context[Any], uri: str) -> bool:
        """Whether a URI names something here, for this caller. Raises InvalidParams for what is no URI."""
        return self._find(ctx, uri) is not None

    def sees(self, ctx: Context[Any], uri: str) -> bool:
        """Whether there is a resource or template registered as this, for this caller."""
        return self._shelf.find(ctx, uri) is not None

    def _find(self, ctx: Context[Any], uri: str) -> tuple[RegisteredResource, Matched] | None:
        """The resource that a URI names, with the values of its variables. Raises InvalidParams for what is no URI."""
        entry = self._shelf.find(ctx, uri)
        if entry is not None and entry.rank is None:
            return entry, {}
        if len(uri) > MAX_URI or _URI.fullmatch(uri) is None:
            problem = f"longer than {MAX_URI} characters" if len(uri) > MAX_URI else "no scheme, or control characters"
            raise InvalidParams(f"Invalid URI: {problem}", {"uri": shorten(uri, 2048)})
        for entry in self._templates:
            values = entry.match(uri)
            if values is not None and self._shelf.find(ctx, entry.uri) is not None:
                return entry, values
        return None


class _Split:
    """One list of listings, and its two parts."""

    def __init__(self, whole: list[Any]) -> None:
        self.whole = whole
        self.resources = [item for item in whole if isinstance(item, Resource)]
        self.templates = [item for item in whole if isinstance(item, ResourceTemplate)]
