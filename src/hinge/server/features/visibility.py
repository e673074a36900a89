"""Who sees which tools, prompts and resources: tags, conditions, switches. What somebody doesn't see doesn't exist for him.

A condition is asked with what the request itself carries and nothing else, so that lists can't depend on the conversation
(STATE-05, T-32). Knows nothing of what it shows.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from hinge.errors import DefinitionError
from hinge.schema.lifecycle import ClientCapabilities
from hinge.server.context import Context

logger = logging.getLogger("hinge")

ItemKind: TypeAlias = Literal["tools", "prompts", "resources"]


class Caller:
    """Who asks, as far as a condition may know: what the request itself says and proves.

    Not more than that, on purpose: the stateless revision forbids lists that differ by connection or by earlier calls, and
    allows that they differ by the request's authorization (STATE-05); what the client can do stands on the request, too.
    Who the client says it is, headers and state are no ground for a decision and are not here.
    """

    __slots__ = ("_ctx",)

    def __init__(self, ctx: Context[Any]) -> None:
        self._ctx = ctx

    @property
    def principal(self) -> str | None:
        """Who was authenticated for this request, or None."""
        return self._ctx.principal

    @property
    def scopes(self) -> frozenset[str]:
        """What this request was authorized for; empty without authorization."""
        return self._ctx.scopes

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client declared: on this request, or in its handshake."""
        return self._ctx.client_capabilities

    def extension(self, extension_id: str) -> dict[str, Any] | None:
        """The client's settings of an extension of the protocol; None if it didn't declare it."""
        return self._ctx.client_extension(extension_id)


#: What a caller gets to see of a listing: the listing, a changed one, or None for nothing.
View: TypeAlias = Callable[[Any, Caller], Any]


class Item:
    """A tool, prompt or resource as a rule sees it. `name` is the URI or template of a resource."""

    __slots__ = ("kind", "listing", "name", "tags", "view")

    def __init__(
        self, kind: ItemKind, name: str, listing: Any, *, tags: Collection[str] = (), view: View | None = None
    ) -> None:
        self.kind = kind
        self.name = name
        self.tags = _tags(name, tags)
        #: The Tool, Prompt, Resource or ResourceTemplate as it is listed.
        self.listing = listing
        self.view = view


#: Whether this caller sees this item.
Rule: TypeAlias = Callable[[Item, Caller], bool]


def view_of(name: str, visible: Callable[[Caller], bool] | None) -> View | None:
    """A view from a plain condition. Raises DefinitionError for an async one."""
    if visible is None:
        return None
    condition = _sync(f"visible= of {name!r}", visible)
    return lambda listing, caller: listing if condition(caller) else None


def _sync(what: str, condition: Callable[..., bool]) -> Callable[..., bool]:
    if not callable(condition):
        raise DefinitionError(f"{what} must be a function of the caller that returns True or False")
    if inspect.iscoroutinefunction(condition) or inspect.iscoroutinefunction(type(condition).__call__):
        raise DefinitionError(f"{what} must be a plain function, not `async def`: lists ask it once per item")
    return condition


def _tags(name: str, tags: Collection[str]) -> frozenset[str]:
    if isinstance(tags, str):
        raise DefinitionError(f"tags={tags!r} of {name!r} is one text: write tags={{{tags!r}}}")
    if not isinstance(tags, Iterable):
        raise DefinitionError(f"tags={tags!r} of {name!r} is no set of words: write tags={{…}}")
    return frozenset(tags)


class Entry(Protocol):
    """What a shelf holds; `item` is what rules see of it."""

    item: Item


EntryT = TypeVar("EntryT", bound=Entry)


class Shelf(Generic[EntryT]):
    """The entries of one list by name: those that all see, those that some see, and those that are switched off."""

    def __init__(self, visibility: Visibility, changed: Callable[[], None]) -> None:
        self._visibility = visibility
        #: Tells the clients.
        self.changed = changed
        self.entries: dict[str, EntryT] = {}
        #: What everybody sees: on the path of a call, finding an entry here is all that visibility costs.
        self.open: dict[str, EntryT] = {}
        #: What depends on the caller.
        self.varying: dict[str, EntryT] = {}
        self._listings: list[Any] | None = None

    def add(self, name: str, entry: EntryT) -> None:
        """Take in a new entry."""
        self.entries[name] = entry
        self._sort_in(name, entry)
        self._listings = None
        self.changed()

    def remove(self, name: str) -> None:
        """Raises KeyError when there is none of that name."""
        del self.entries[name]
        self.open.pop(name, None)
        self.varying.pop(name, None)
        self._listings = None
        self.changed()

    def _sort_in(self, name: str, entry: EntryT) -> None:
        visibility = self._visibility
        if visibility.enabled(entry.item):
            varies = visibility.ruled or entry.item.view is not None
            (self.varying if varies else self.open)[name] = entry

    def refresh(self) -> bool:
        """After a change of rules or switches. Whether what is on differs from before."""
        before = {*self.open, *self.varying}
        self.open.clear()
        self.varying.clear()
        for name, entry in self.entries.items():
            self._sort_in(name, entry)
        self._listings = None
        return before != {*self.open, *self.varying}

    def find(self, ctx: Context[Any], name: str) -> EntryT | None:
        """The entry of that name, if this caller sees it."""
        entry = self.open.get(name)
        if entry is None and self.varying:
            entry = self.varying.get(name)
            if entry is not None and self._visibility.seen(entry.item, Caller(ctx)) is None:
                return None
        return entry

    def names(self, ctx: Context[Any]) -> Iterable[str]:
        """The names that this caller sees, in the order of registration."""
        if not self.varying:
            return self.open
        caller = Caller(ctx)
        seen = self._visibility.seen
        return [
            name
            for name, entry in self.entries.items()
            if name in self.open or (name in self.varying and seen(entry.item, caller) is not None)
        ]

    def listings(self, ctx: Context[Any]) -> list[Any]:
        """What this caller sees of the list, in the order of registration; not to be changed."""
        if not self.varying:
            if self._listings is None:
                self._listings = [entry.item.listing for entry in self.open.values()]
            return self._listings
        caller = Caller(ctx)
        found: list[Any] = []
        for name, entry in self.entries.items():
            if name in self.open:
                found.append(entry.item.listing)
            elif name in self.varying:
                listing = self._visibility.seen(entry.item, caller)
                if listing is not None:
                    found.append(listing)
        return found


class Visibility:
    """The rules and switches of one server."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._off: set[str] = set()
        self._off_tags: set[str] = set()
        self._shelves: list[Shelf[Any]] = []

    def shelf(self, changed: Callable[[], None]) -> Shelf[Any]:
        """A new list whose entries these rules are about."""
        made: Shelf[Any] = Shelf(self, changed)
        self._shelves.append(made)
        return made

    @property
    def ruled(self) -> bool:
        """Whether there are rules for all items."""
        return bool(self._rules)

    def enabled(self, item: Item) -> bool:
        """Whether it is switched on."""
        return item.name not in self._off and self._off_tags.isdisjoint(item.tags)

    def seen(self, item: Item, caller: Caller) -> Any:
        """What this caller sees of an enabled item; None for nothing, also when a condition fails."""
        try:
            if not all(rule(item, caller) for rule in self._rules):
                return None
            return item.listing if item.view is None else item.view(item.listing, caller)
        except Exception:
            logger.exception("%r is hidden: the condition for seeing it failed", item.name)
            return None

    def add_rule(self, rule: Rule) -> None:
        """From now on an item is seen only where this holds, too."""
        self._rules.append(_sync("server.visibility(…)", rule))
        for shelf in self._shelves:
            shelf.refresh()
            if shelf.entries:
                shelf.changed()

    def switch(self, names: Collection[str], tags: Collection[str], *, on: bool) -> None:
        """Switch items on or off, by name and by tag. Raises KeyError for switching off a name that nothing has."""
        for name in names if not on else ():
            if not any(name in shelf.entries for shelf in self._shelves):
                raise KeyError(f"There is no tool, prompt or resource {name!r} to disable")
        for given, kept in ((names, self._off), (_tags("", tags), self._off_tags)):
            (kept.difference_update if on else kept.update)(given)
        for shelf in self._shelves:
            if shelf.refresh():
                shelf.changed()
