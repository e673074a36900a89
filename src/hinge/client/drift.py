"""Holds a server to its lock: what it offers is compared with what was locked, and what differs is refused or told.

Stands as the innermost middleware, where the server's own names pass. Knows a contract and what was listed last; it asks
nothing by itself but for a list that a call needs.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from hinge.client.negotiation import Discovery
from hinge.errors import ContractDrift, DefinitionError, InvalidResponse, shorten
from hinge.lock.comparing import Difference, entry_differences
from hinge.lock.contract import SINGULAR, Contract, Listed, Section, definition_of, key_of
from hinge.lock.file import read_lock
from hinge.lock.wording import text_changed
from hinge.protocol.changes import Changed, ChangesLost
from hinge.schema.prompts import ListPromptsResult
from hinge.schema.resources import ListResourcesResult, ListResourceTemplatesResult
from hinge.schema.tools import ListToolsResult

if TYPE_CHECKING:
    from hinge.client.client import Client
    from hinge.client.middleware import CallNext, ClientContext

logger = logging.getLogger("hinge")

#: A lock file's path, or what `contract_of` found.
Lock: TypeAlias = str | os.PathLike[str] | Contract
Drift: TypeAlias = Literal["refuse", "warn"]
OnDrift: TypeAlias = Callable[[Sequence[Difference]], Any]

#: What is used by name and the list that it must stand in; how the lists are asked for; which change makes them worthless.
_USES: Mapping[str, Section] = {"tools/call": "tools", "prompts/get": "prompts"}
_LISTS: Mapping[str, tuple[Section, Any]] = {
    "tools/list": ("tools", ListToolsResult),
    "prompts/list": ("prompts", ListPromptsResult),
    "resources/list": ("resources", ListResourcesResult),
    "resources/templates/list": ("resourceTemplates", ListResourceTemplatesResult),
}
_CHANGES: Mapping[str, tuple[Section, ...]] = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "resourceTemplates"),
}
#: How many entries are told in detail, and how hard their schemas are compared: a server must not keep us busy with it.
_DETAILED = 5
_STEPS = 200
#: So many lists may be read page by page at one time.
_READ_AT_ONCE = 100
#: So many differences stand in the message of an error; all of them are in its `lines`.
_IN_MESSAGE = 3
#: A list that changes again while it is read is read again, but not for ever.
_ATTEMPTS = 3


class _Page(NamedTuple):
    """The pages of a list so far, the last one first."""

    items: Sequence[Listed]
    before: _Page | None = None


class Guard:
    """One client's lock. `drift` says what becomes of a difference, `on_drift` hears of each set of them once.

    Raises StartError for a file that is no lock, DefinitionError for another `drift`.
    """

    def __init__(self, lock: Lock, drift: Drift, on_drift: OnDrift | None) -> None:
        if drift not in ("refuse", "warn"):
            raise DefinitionError(f'drift={drift!r} is not possible: use "refuse" or "warn"')
        self._contract = lock if isinstance(lock, Contract) else read_lock(lock)
        self._where = "the lock" if isinstance(lock, Contract) else str(lock)
        self._refuses = drift == "refuse"
        self._on_drift = on_drift
        #: What is wrong with each entry of a section, as it was listed last; nothing for a section not listed since a change.
        self._found: dict[Section, dict[str, Sequence[Difference]]] = {}
        self._greeting: Sequence[Difference] = ()
        #: Lists that are read just now, by section and the cursor of the page that comes next.
        self._pages: dict[tuple[Section, str], _Page] = {}
        self._generation = 0
        self._listing = asyncio.Lock()
        self._told: set[str] = set()
        self._seen: tuple[str, Contract] | None = None

    def greeted(self, found: Discovery) -> None:
        """A conversation was opened: its instructions must be the locked ones. Raises ContractDrift when refusing."""
        self.forget()
        was, now = self._contract.instructions, found.instructions
        self._greeting = []
        if was != now:
            message = text_changed(was, now)
            line = Difference(severity="text", kind="server", name="", place="instructions", message=message)
            self._greeting = [line]
        self._tell(self._greeting)
        self._raise_for(self._greeting)

    def heard(self, change: Changed | ChangesLost) -> None:
        """Something changed: what it concerns has to be listed before it is used again."""
        if isinstance(change, ChangesLost):
            self.forget()
        else:
            self.forget(*_CHANGES.get(change.kind, ()))

    def forget(self, *sections: Section) -> None:
        """What was listed of these sections, or of all, counts no more."""
        self._generation += 1
        for section in sections or tuple(self._found):
            self._found.pop(section, None)

    async def __call__(self, ctx: ClientContext, call_next: CallNext) -> Any:
        """Every request passes here. Raises ContractDrift for the use of a tool or prompt that isn't what was locked."""
        if ctx.inbound or ctx.notification:
            return await call_next(ctx)
        await self._before(ctx)
        result = await call_next(ctx)
        if ctx.method in _LISTS:
            self._page(ctx, result)
        return result

    def check(self, section: Section) -> None:
        """A section was listed, whole. Raises ContractDrift, with all that differs, when refusing."""
        found = self._found.get(section, {})
        self._raise_for([one for differences in found.values() for one in differences])

    def _page(self, ctx: ClientContext, result: Any) -> None:
        section, kind = _LISTS[ctx.method]
        try:
            page = result if isinstance(result, kind) else msgspec.convert(result, kind)
        except msgspec.ValidationError as exc:
            raise InvalidResponse(f"{ctx.method}: the result can't be read: {exc}") from exc
        items = getattr(page, "resource_templates" if section == "resourceTemplates" else section)
        cursor, before = ctx.params.get("cursor"), None
        if cursor is not None:
            before = self._pages.pop((section, cursor), None)
            if before is None:
                return  # a page out of its order is no list
        so_far = _Page(items, before)
        if page.next_cursor is not None:
            if len(self._pages) >= _READ_AT_ONCE:
                self._pages.clear()
            self._pages[section, page.next_cursor] = so_far
            return
        whole: list[Listed] = []
        link: _Page | None = so_far
        while link is not None:
            whole = [*link.items, *whole]
            link = link.before
        self._listed(section, whole, ctx.protocol_version)

    def _listed(self, section: Section, items: Iterable[Listed], revision: str) -> None:
        """Compare a whole list with the lock."""
        locked = self._locked(section, revision)
        if locked is None:
            return
        common = min(revision, self._contract.revision)
        found: dict[str, Sequence[Difference]] = {}
        detailed = _DETAILED
        for item in items:
            key, definition = key_of(item), definition_of(item, common)
            lines = entry_differences(section, key, locked.get(key), definition, steps=_STEPS if detailed > 0 else 0)
            found[key] = [*found.get(key, ()), *lines]
            detailed -= bool(lines)
        for key in sorted(locked.keys() - found.keys()):
            found[key] = entry_differences(section, key, locked[key], None)
        self._found[section] = found
        self._tell([one for differences in found.values() for one in differences])

    async def _before(self, ctx: ClientContext) -> None:
        if not self._refuses:
            return
        self._raise_for(self._greeting)
        section = _USES.get(ctx.method)
        if section is None or self._locked(section, ctx.protocol_version) is None:
            return
        if section not in self._found:
            async with self._listing:
                await self._list(ctx.client, section)
        name = str(ctx.params.get("name"))
        differences = self._found.get(section, {}).get(name)
        if differences is None:
            raise ContractDrift(f"Neither the server nor {self._where} has a {SINGULAR[section]} {shorten(name)!r}")
        self._raise_for(differences)

    async def _list(self, client: Client, section: Section) -> None:
        for _ in range(_ATTEMPTS):
            if section in self._found:
                return
            before = self._generation
            with suppress(ContractDrift):  # perhaps not about what is to be used
                await (client.list_tools() if section == "tools" else client.list_prompts())
            if before != self._generation:
                self._found.pop(section, None)

    def _locked(self, section: Section, revision: str) -> dict[str, Any] | None:
        """The section as a conversation of this revision can show it."""
        common = min(revision, self._contract.revision)
        if self._seen is None or self._seen[0] != common:
            self._seen = (common, self._contract.seen_in(common))
        return self._seen[1].section(section)

    def _tell(self, differences: Sequence[Difference]) -> None:
        """Each difference is told once."""
        if {str(one) for one in differences} <= self._told:
            return
        self._told = {str(one) for one in differences}
        if not self._refuses:
            for one in differences:
                logger.warning("Not as in %s: %s (%s)", self._where, one, one.severity)
        if self._on_drift is not None:
            try:
                self._on_drift(differences)
            except Exception:
                logger.exception("on_drift failed")

    def _raise_for(self, differences: Sequence[Difference]) -> None:
        if not self._refuses or not differences:
            return
        lines = [str(one) for one in differences]
        more = f"; and {len(lines) - _IN_MESSAGE} more" if len(lines) > _IN_MESSAGE else ""
        told = "; ".join(lines[:_IN_MESSAGE])
        raise ContractDrift(f"The server is not what {self._where} says: {told}{more}", lines)
