"""What sessions of tests share: they are told of everything and do nothing about it."""

from __future__ import annotations

from tests.support import UNKNOWN_ORIGIN, Batch, Call, Inbound, Origin, Outgoing


class QuietSession:
    """A session for a channel under test. Tests override what they are about."""

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> Call | Batch | Outgoing | None:
        raise NotImplementedError

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        raise AssertionError("this session has no calls")

    def note(self, deviation: str, detail: str = "", /) -> None: ...

    def cancel(self, call: Call | Batch, reason: str, /) -> None: ...

    def end_input(self, reason: str, /) -> None: ...

    def stop(self, reason: str, /) -> list[Outgoing]:
        return []

    def close(self, reason: str, /) -> None: ...

    async def wait_closed(self) -> None: ...
