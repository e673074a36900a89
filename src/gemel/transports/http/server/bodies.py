"""How much memory the bodies of requests may take together, and who has how much of it."""

from __future__ import annotations

import asyncio
from collections import Counter

from gemel.http1.asgi import Scope
from gemel.protocol.records import Batch, Call
from gemel.shares import address_share


class BodiesFull(Exception):
    """The budget is used up."""


class BodyBudget:
    """Bytes of the bodies of requests that are not over: while they arrive, and while their calls are served.

    Half of the budget is divided equally among all requests, the other half is shared: clients that send large bodies and
    never finish them do not keep small ones out. One body beyond its part is always read; with further ones an address takes at
    most as much of the shared half as it leaves to others.

    Args:
        total: Bytes.
        requests: Maximum number of requests at once.
    """

    def __init__(self, total: int, requests: int) -> None:
        #: Bytes that each body may have without anything of the shared half.
        self.part = total // 2 // requests
        self._shared = total // 2
        #: Bytes of the shared half that are in use; in all, and by address.
        self.used = 0
        self._used_by: Counter[str] = Counter()

    def take(self, size: int, held: int, holder: str) -> None:
        """Take bytes for a body that holds some already. Raises BodiesFull."""
        mine = self._used_by[holder]
        if self.used > held and (
            self.used + size > self._shared or (mine > held and mine + size > self._shared - self.used)
        ):
            raise BodiesFull
        self.used += size
        self._used_by[holder] += size

    def give_back(self, size: int, holder: str) -> None:
        """A body is no longer in memory."""
        self.used -= size
        self._used_by[holder] -= size
        if not self._used_by[holder]:
            del self._used_by[holder]


class LargeBody:
    """What a body beyond its part takes of the shared half of the budget."""

    __slots__ = ("_address", "_budget", "_held", "_holders")

    def __init__(self, budget: BodyBudget, scope: Scope) -> None:
        self._budget = budget
        client = scope.get("client")
        #: The share of the address that it comes from.
        self._address = address_share(str(client[0]) if client else None)
        self._held = 0
        #: What keeps the body in memory: its exchange, and tasks and functions in threads that may outlive it.
        self._holders = 1

    def grow(self, size: int) -> None:
        """The body has this many bytes now. Raises BodiesFull."""
        more = size - self._budget.part - self._held
        if more > 0:
            self._budget.take(more, self._held, self._address)
            self._held += more

    def hold(self, task: asyncio.Task[None], served: Call | Batch) -> None:
        """Count the body until the task that serves it is done, too."""
        self._holders += 1

        def end(_task: object) -> None:
            self.hold_for(served)
            self.end()

        task.add_done_callback(end)

    def hold_for(self, served: Call | Batch) -> None:
        """Count the body while anything keeps the params of what was served."""
        for call in served.calls if type(served) is Batch else (served,):
            self._holders += 1
            call.when_released(self.end)

    def end(self) -> None:
        """One of those that keep the body is over."""
        self._holders -= 1
        if not self._holders:
            self._budget.give_back(self._held, self._address)
