"""Client middleware that compares what a server offers with a contract, and refuses or reports what differs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from gemel.client.callbacks import awaited
from gemel.client.methods import Caller, CallNext, ClientContext
from gemel.client.middleware import Drift, OnDrift
from gemel.contracts.compare import entry_differences
from gemel.contracts.contract import SECTIONS, Contract, Definition, definition_of, key_of
from gemel.contracts.display import change_shown, unset_if_none
from gemel.contracts.lock_file import read_lock
from gemel.errors import ContractDrift, DefinitionError, Difference, InvalidResponse, shorten
from gemel.loops import PerLoop
from gemel.schema.base import Model
from gemel.schema.methods import LISTS, METHODS, ItemList, Section, lists_of

if TYPE_CHECKING:
    from gemel.client.methods import ClientMethods

logger = logging.getLogger("gemel")

#: The path of a lock file, or a contract.
Lock: TypeAlias = str | os.PathLike[str] | Contract

#: Requests that use an entry by its name, and the section that it must stand in.
_USES: Mapping[str, ItemList] = {of.used_by: of for of in LISTS.values() if of.is_named}
#: The requests that list a section.
_SECTIONS: Mapping[str, ItemList] = {of.method: of for of in LISTS.values()}
#: How many changed items of one list are described in detail, and in how many steps each: a server decides how many there
#: are and how complex they are.
_DETAILED = 5
_STEPS = 200
#: How many bytes of items are compared before other tasks run.
_SLICE = 64 * 1024
#: How many lists are kept, and may be read page by page at the same time.
_MAX_LISTS = 100
#: How many differences stand in the message of an error; `lines` has all of them.
_IN_MESSAGE = 3
#: How often a list that changes while it is read is read again.
_ATTEMPTS = 3

#: Set while the check lists a section itself: what differs is noted then, and not raised.
_listing: ContextVar[bool] = ContextVar("gemel_contract_listing", default=False)


class ContractCheck:
    """Middleware that holds a server to a contract: `Client(target, middleware=[ContractCheck("gemel.lock")])`.

    `Client(target, lock="gemel.lock")` is the short form. One check belongs to one client. Put it last, so that it sees
    the names that the server uses.

    Args:
        lock: The path of a lock file, or a contract.
        drift: "refuse" raises `ContractDrift` for what differs, "warn" logs it.
        on_drift: Called with the differences of each list, once for each set of them; sync or async.

    Raises:
        StartError: The lock file can't be read or is not valid.
        DefinitionError: `drift` has another value.
    """

    def __init__(self, lock: Lock, *, drift: Drift = "refuse", on_drift: OnDrift | None = None) -> None:
        if drift not in ("refuse", "warn"):
            raise DefinitionError(f'drift={drift!r} is not possible: use "refuse" or "warn"')
        self._contract = lock if isinstance(lock, Contract) else read_lock(lock)
        self._source = "the lock" if isinstance(lock, Contract) else str(lock)
        self._refuses = drift == "refuse"
        self._on_drift = on_drift
        #: The differences of each entry, by caller and section; missing if it was not listed since a change.
        self._differences: dict[tuple[Caller, Section], dict[str, Sequence[Difference]]] = {}
        self._instructions: Sequence[Difference] = ()
        #: The items of unfinished lists, by caller, section and the cursor of the next page.
        self._pages: dict[tuple[Caller, Section, str], list[Model]] = {}
        self._generation = 0
        self._list_locks = PerLoop(asyncio.Lock)
        self._reported: set[str] = set()
        self._view: tuple[str, Contract] | None = None

    async def connected(self, client: ClientMethods) -> None:
        """Compare the server's instructions.

        Args:
            client: The client that is connected now.

        Raises:
            ContractDrift: The instructions changed, and `drift` is "refuse".
        """
        self._forget(SECTIONS)
        was, now = self._contract.instructions, client.instructions
        self._instructions = []
        if was != now:
            message = change_shown(unset_if_none(was), unset_if_none(now))
            line = Difference(severity="text", kind="server", name="", place="instructions", message=message)
            self._instructions = [line]
        await self._report(self._instructions)
        self._raise_for(self._instructions)

    async def __call__(self, ctx: ClientContext, call_next: CallNext) -> Any:
        """Check one request or notification, as client middleware.

        Args:
            ctx: What is sent or was received.
            call_next: Sends or handles it.

        Returns:
            What `call_next` returns.

        Raises:
            ContractDrift: A tool or prompt that is used, a list or the instructions differ, and `drift` is "refuse".
            InvalidResponse: A list that can't be read.
        """
        if ctx.inbound or ctx.notification:
            row = METHODS.get(ctx.method)
            if ctx.inbound and row is not None and row.changed is not None:
                self._forget([of.member for of in lists_of(row.changed)])
            return await call_next(ctx)
        if self._refuses:
            await self._check_use(ctx)
        result = await call_next(ctx)
        of = _SECTIONS.get(ctx.method)
        if of is not None:
            differences = await self._take_page(of, ctx, result)
            if differences and self._refuses and not _listing.get():
                self._forget((of.member,))  # the caller does not get the list: it is listed again for the next use
                self._raise_for(differences)
        return result

    def _forget(self, sections: Iterable[Section]) -> None:
        self._generation += 1
        for section in sections:
            for key in [key for key in self._differences if key[1] == section]:
                del self._differences[key]

    # ---------------------------------------------------------------- lists

    async def _take_page(self, of: ItemList, ctx: ClientContext, result: object) -> Sequence[Difference]:
        """Remember a page. Returns the differences of its list if it is the last one."""
        try:
            page = result if isinstance(result, of.result) else msgspec.convert(result, of.result)
        except msgspec.ValidationError as exc:
            raise InvalidResponse(f"{ctx.method}: the result can't be read: {exc}") from exc
        cursor = ctx.params.get("cursor")
        caller = await _caller(ctx)
        caller = await _caller(ctx)
        earlier = [] if cursor is None else self._pages.pop((caller, of.member, cursor), None)
        if earlier is None:
            return ()  # the first page of its list was not seen
        items: list[Model] = [*earlier, *getattr(page, of.field)]
        if page.next_cursor is not None:
            if len(self._pages) >= _MAX_LISTS:
                self._pages.clear()
            self._pages[caller, of.member, page.next_cursor] = items
            return ()
        return await self._compare(caller, of, items, ctx.protocol_version)

    async def _compare(
        self, caller: Caller, of: ItemList, items: Iterable[Model], revision: str
    ) -> Sequence[Difference]:
        """Compare a list. The event loop is released after each _SLICE bytes; larger items are compared in a thread."""
        locked = self._locked(of.member, revision)
        if locked is None:
            return ()
        common, generation = min(revision, self._contract.revision), self._generation
        by_key: dict[str, Sequence[Difference]] = {}
        detailed, pending = _DETAILED, 0
        for item in items:
            key, size = key_of(item), len(msgspec.json.encode(item))
            steps = _STEPS if detailed > 0 else 0
            pending += size
            if size > _SLICE:
                lines = await asyncio.to_thread(_item_differences, of.member, item, locked.get(key), common, steps)
            else:
                lines = _item_differences(of.member, item, locked.get(key), common, steps)
            if pending > _SLICE:
                pending = 0
                await asyncio.sleep(0)
            by_key[key] = [*by_key.get(key, ()), *lines]
            detailed -= bool(lines)
        for key in sorted(locked.keys() - by_key.keys()):
            by_key[key] = entry_differences(of.member, key, locked[key], None)
        if generation == self._generation:
            self._differences[caller, of.member] = by_key
            while len(self._differences) > _MAX_LISTS:
                del self._differences[next(iter(self._differences))]
        differences = [one for lines in by_key.values() for one in lines]
        await self._report(differences)
        return differences

    def _locked(self, section: Section, revision: str) -> dict[str, Any] | None:
        """The locked section, as a connection of this revision can show it."""
        common = min(revision, self._contract.revision)
        if self._view is None or self._view[0] != common:
            self._view = (common, self._contract.seen_in(common))
        return self._view[1].section(section)

    # ---------------------------------------------------------------- uses

    async def _check_use(self, ctx: ClientContext) -> None:
        self._raise_for(self._instructions)
        of = _USES.get(ctx.method)
        if of is None or self._locked(of.member, ctx.protocol_version) is None:
            return
        caller = await _caller(ctx)
        if (caller, of.member) not in self._differences:
            async with self._list_locks.here():
                await self._list(ctx, caller, of)
        name = str(ctx.params.get(of.key))
        differences = self._differences.get((caller, of.member), {}).get(name)
        if differences is None:
            raise ContractDrift(f"Neither the server nor {self._source} has a {of.word} {shorten(name)!r}")
        self._raise_for(differences)

    async def _list(self, ctx: ClientContext, caller: Caller, of: ItemList) -> None:
        token = _listing.set(True)
        try:
            for _ in range(_ATTEMPTS):
                if (caller, of.member) in self._differences:
                    return
                generation = self._generation
                with suppress(ContractDrift):
                    await ctx.client.request_pages(of.method, of.result, headers=ctx.headers)
                if generation != self._generation:
                    self._differences.pop((caller, of.member), None)
        finally:
            _listing.reset(token)

    # ---------------------------------------------------------------- reports

    async def _report(self, differences: Sequence[Difference]) -> None:
        """Log differences and call `on_drift`, unless all of them were reported the last time."""
        lines = {str(one) for one in differences}
        if lines <= self._reported:
            return
        self._reported = lines
        if not self._refuses:
            for one in differences:
                logger.warning("Not as in %s: %s (%s)", self._source, one, one.severity)
        if self._on_drift is not None:
            try:
                await awaited(self._on_drift(differences))
            except Exception:
                logger.exception("on_drift failed")

    def _raise_for(self, differences: Sequence[Difference]) -> None:
        if not self._refuses or not differences:
            return
        lines = [str(one) for one in differences]
        more = f"; and {len(lines) - _IN_MESSAGE} more" if len(lines) > _IN_MESSAGE else ""
        first = "; ".join(lines[:_IN_MESSAGE])
        raise ContractDrift(f"The server is not what {self._source} says: {first}{more}", lines)


async def _caller(ctx: ClientContext) -> Caller:
    """Whom a request is sent for, or was; what a server offers may depend on that."""
    credentials, headers = ctx.caller
    return credentials or await ctx.client.credentials(), headers


def _item_differences(
    section: Section, item: Model, locked: Definition | None, revision: str, steps: int
) -> Sequence[Difference]:
    definition = definition_of(item, revision)
    return entry_differences(section, key_of(item), locked, definition, steps=steps)
