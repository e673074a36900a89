"""Visibility: which tools, prompts and resources a caller sees, by tags, conditions and switches.

What a caller doesn't see doesn't exist for that caller, in lists and in calls. Conditions see only what the request itself
carries, since lists must not depend on the connection or on earlier requests:
https://modelcontextprotocol.io/specification/2026-07-28/server/tools#capabilities
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from gemel.errors import DefinitionError, InsufficientScope
from gemel.options import hint, is_async, is_function, one_of
from gemel.protocol.scopes import parse_scopes
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.methods import Feature
from gemel.server.context import Context, served_call
from gemel.server.injection import without_markers

logger = logging.getLogger("gemel")


class Caller:
    """Who sends a request, as far as conditions may depend on it.

    A list may differ by the request's authorization and by the capabilities that the request declares, not by
    connection or earlier calls. So the client's name, headers and state are not here. Conditions get a Caller; programs
    don't make one.

    Args:
        ctx: The context of the request.
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
        """The scopes that this request was authorized for; empty without authorization."""
        return self._ctx.scopes

    @property
    def claims(self) -> Mapping[str, Any]:
        """The further claims of the caller's token, such as its roles, read-only; empty without authorization."""
        return self._ctx.claims

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client declared, with this request or in its handshake."""
        return self._ctx.client_capabilities

    def extension(self, extension_id: str) -> dict[str, Any] | None:
        """The client's settings of a protocol extension.

        Args:
            extension_id: The id of the extension, such as `io.modelcontextprotocol/ui`.

        Returns:
            The settings; None if the client didn't declare the extension.
        """
        return self._ctx.client_extension(extension_id)


#: From a listing to what a caller sees of it: the same, a changed one, or None for nothing.
View: TypeAlias = Callable[[Any, Caller], Any]


class Item:
    """A tool, prompt or resource as visibility rules see it. Rules get an Item; programs don't make one.

    Args:
        kind: "tools", "prompts" or "resources".
        name: The name; of a resource the URI or template.
        listing: The Tool, Prompt, Resource or ResourceTemplate as it is listed.
        tags: The tags that its author gave it.
        view: What a caller sees of the listing; everybody sees all of it by default.
        scopes: The scopes that a call needs.
        hides: Whether it doesn't exist for callers without these scopes.
    """

    __slots__ = ("hides", "kind", "listing", "name", "scopes", "tags", "view")

    def __init__(
        self,
        kind: Feature,
        name: str,
        listing: Any,
        *,
        tags: Collection[str] = (),
        view: View | None = None,
        scopes: Collection[str] = (),
        hides: bool = False,
    ) -> None:
        self.kind = kind
        self.name = name
        self.tags = _tags(name, tags)
        self.listing = listing
        self.view = view
        self.scopes = parse_scopes(repr(name), scopes)
        self.hides = hides


def has_scopes(ctx: Context[Any], scopes: frozenset[str]) -> bool:
    """Whether the caller of a request has all of these scopes, or needs none because it is the application itself."""
    return not scopes or served_call(ctx).call.origin.scopes is None or scopes <= ctx.scopes


def require_scopes(ctx: Context[Any], scopes: frozenset[str]) -> None:
    """Raise InsufficientScope for a caller that lacks one of these scopes, which count as needed by its request."""
    if not scopes:
        return
    served_call(ctx).call.needed_scopes |= scopes
    if not has_scopes(ctx, scopes):
        raise InsufficientScope(*scopes)


#: Whether this caller sees this item.
Rule: TypeAlias = Callable[[Item, Caller], bool]


def view_of(name: str, visible: Callable[[Caller], bool] | None) -> View | None:
    """A view from a condition. Raises DefinitionError for an async one."""
    if visible is None:
        return None
    condition = checked(f"visible= of {name!r}", visible, "caller")
    return lambda listing, caller: listing if condition(caller) else None


def checked(what: str, condition: Callable[..., bool], *arguments: str) -> Callable[..., bool]:
    """Return a condition. Raises DefinitionError for one that is async or takes other arguments."""
    if is_async(condition):
        raise DefinitionError(f"{what} must be a plain function, not `async def`: lists ask it once per item")
    if not is_function(condition, len(arguments)):
        raise DefinitionError(
            f"{what} must be a function of the {' and the '.join(arguments)} that returns True or False"
        )
    return without_markers(condition)


def _tags(name: str, tags: Collection[str]) -> frozenset[str]:
    if isinstance(tags, str):
        raise DefinitionError(f"tags={tags!r} of {name!r} is one string: write tags={{{tags!r}}}")
    if not isinstance(tags, Iterable):
        raise DefinitionError(f"tags={tags!r} of {name!r} is not a set of strings: write tags={{…}}")
    return frozenset(tags)


OnDuplicate: TypeAlias = Literal["error", "replace", "keep"]
ON_DUPLICATE = one_of("error", "replace", "keep")
_COUNTING: Mapping[str, str] = {"replace": "second", "keep": "first"}


class Registered(Protocol):
    """A registered tool, prompt or resource."""

    item: Item


EntryT = TypeVar("EntryT", bound=Registered)
ListingT = TypeVar("ListingT")


class Entries(Generic[EntryT]):
    """The tools, prompts or resources of one server by name. `changed` is called when the list changes."""

    def __init__(self, visibility: Visibility, changed: Callable[[], None]) -> None:
        self._visibility = visibility
        visibility.entries.append(self)
        self.changed = changed
        self.all: dict[str, EntryT] = {}
        #: Those that every caller sees: on the path of a call, visibility costs a look-up here.
        self.public: dict[str, EntryT] = {}
        #: Those that depend on the caller.
        self.restricted: dict[str, EntryT] = {}
        self._public_listings: dict[type, list[Any]] = {}
        #: First pages of the lists that every caller sees, by method and revision, with JSON text in place of the items.
        self.encoded: dict[tuple[str, str], Any] = {}
        #: What becomes of an entry whose name is taken.
        self.on_duplicate: OnDuplicate = "error"

    def __len__(self) -> int:
        return len(self.all)

    def register(self, name: str, entry: EntryT) -> bool:
        """Add an entry. Returns whether it was added. If the name is taken, `on_duplicate` decides: raises DefinitionError."""
        if is_taken := name in self.all:
            kind = entry.item.kind.removesuffix("s")
            if self.on_duplicate == "error":
                what = "URI" if kind == "resource" else "name"
                raise DefinitionError(
                    f"There is a {kind} {name!r} already: give this one another {what}, remove the first, or say which counts: "
                    'Server(on_duplicate="replace") or "keep"'
                )
            logger.info("There are two of the %s %r: the %s counts", kind, name, _COUNTING[self.on_duplicate])
            if self.on_duplicate == "keep":
                return False
        self.all[name] = entry
        if is_taken:
            self.refresh()
        else:
            self._classify(name, entry)
            self._forget_lists()
        self.changed()
        return True

    def entry(self, name: str) -> EntryT:
        """The entry of a name, for callers in this process. Raises KeyError if there is none."""
        if name not in self.all:
            raise KeyError(f"There is no {name!r} to remove: {hint(name, self.all)}")
        return self.all[name]

    def remove(self, name: str, /) -> None:
        """Remove an entry. Raises KeyError if there is none of that name."""
        self.entry(name)
        del self.all[name]
        self.public.pop(name, None)
        self.restricted.pop(name, None)
        self._forget_lists()
        self.changed()

    def _forget_lists(self) -> None:
        self._public_listings = {}
        self.encoded = {}

    def _classify(self, name: str, entry: EntryT) -> None:
        visibility = self._visibility
        if visibility.enabled(entry.item):
            depends = visibility.has_rules or entry.item.view is not None or entry.item.hides
            (self.restricted if depends else self.public)[name] = entry

    def refresh(self) -> bool:
        """Apply changed rules and switches. Returns whether other entries are enabled than before."""
        before = {*self.public, *self.restricted}
        self.public.clear()
        self.restricted.clear()
        for name, entry in self.all.items():
            self._classify(name, entry)
        self._forget_lists()
        return before != {*self.public, *self.restricted}

    def find(self, ctx: Context[Any], name: str) -> EntryT | None:
        """The entry of that name, if this caller sees it."""
        entry = self.public.get(name)
        if entry is None and self.restricted:
            entry = self.restricted.get(name)
            if entry is not None and self._visibility.seen(entry.item, ctx) is None:
                return None
        return entry

    def sees(self, ctx: Context[Any], name: str) -> bool:
        """Whether this caller sees an entry of that name."""
        return self.find(ctx, name) is not None

    def names(self, ctx: Context[Any]) -> Iterable[str]:
        """The names that this caller sees, in the order of registration."""
        return [name for name, _ in self._seen(ctx)] if self.restricted else self.public

    def listings(self, ctx: Context[Any], kind: type[ListingT]) -> list[ListingT]:
        """What this caller sees of the listings of one type, in the order of registration; not to be changed."""
        if self.restricted:
            return [listing for _, listing in self._seen(ctx) if isinstance(listing, kind)]
        known = self._public_listings
        public = known.get(kind)
        if public is None:
            listings = [entry.item.listing for entry in self.public.values()]
            public = known[kind] = [listing for listing in listings if isinstance(listing, kind)]
        return public

    def _seen(self, ctx: Context[Any]) -> Iterable[tuple[str, Any]]:
        for name, entry in self.all.items():
            if name in self.public:
                yield name, entry.item.listing
            elif name in self.restricted and (listing := self._visibility.seen(entry.item, ctx)) is not None:
                yield name, listing


class Visibility:
    """The rules and switches of one server."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._off: set[str] = set()
        self._off_tags: set[str] = set()
        #: What the rules apply to.
        self.entries: list[Entries[Any]] = []

    @property
    def has_rules(self) -> bool:
        """Whether there are rules for all items."""
        return bool(self._rules)

    def enabled(self, item: Item) -> bool:
        """Whether no switch disables it."""
        return item.name not in self._off and self._off_tags.isdisjoint(item.tags)

    def seen(self, item: Item, ctx: Context[Any]) -> Any:
        """What the caller of a request sees of an enabled item; None for nothing, even if a condition raises."""
        if item.hides and not has_scopes(ctx, item.scopes):
            return None
        caller = Caller(ctx)
        try:
            if not all(rule(item, caller) for rule in self._rules):
                return None
            return item.listing if item.view is None else item.view(item.listing, caller)
        except Exception:
            logger.exception("%r is hidden: its visibility condition raised", item.name)
            return None

    def add_rule(self, rule: Rule) -> None:
        """Add a rule that all items must satisfy."""
        self._rules.append(checked("server.visibility(…)", rule, "item", "caller"))
        for entries in self.entries:
            entries.refresh()
            if entries.all:
                entries.changed()

    def switch(self, names: Collection[str], tags: Collection[str], *, on: bool) -> None:
        """Enable or disable items by name and by tag. Raises KeyError for disabling a name that nothing has."""
        for name in names if not on else ():
            if not any(name in entries.all for entries in self.entries):
                raise KeyError(f"There is no tool, prompt or resource {name!r} to disable")
        for given, disabled in ((names, self._off), (_tags("", tags), self._off_tags)):
            (disabled.difference_update if on else disabled.update)(given)
        for entries in self.entries:
            if entries.refresh():
                entries.changed()
