"""A store that is full or away when the step of a stateless call has run: the step is not repeated, and nobody is told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemel import BackendError, Client, Context, Limits, Overloaded, PeerError, Server
from gemel.backends import SqliteBackend

failures = pytest.mark.parametrize("failure", [Overloaded("the store is full"), BackendError("the store is away")])


class Troubled(SqliteBackend):
    """A store that fails so many times from a moment on."""

    failure: Exception = Overloaded("full")
    fails = 0

    def _fail(self) -> None:
        if self.fails:
            self.fails -= 1
            raise self.failure

    async def get(self, key: str) -> bytes | None:
        self._fail()
        return await super().get(key)

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        self._fail()
        await super().set(key, value, ttl=ttl)

    async def touch(self, key: str, *, ttl: float) -> bool:
        self._fail()
        return await super().touch(key, ttl=ttl)


def paying(backend: Troubled, failure: Exception, fails: int, paid: list[str], *, large: bool) -> Server[Any]:
    """A server whose tool pays in a step, in which its store begins to fail, and asks then."""
    server: Server[Any] = Server("shop", backend=backend, limits=Limits(step_bytes=1000))

    @server.tool
    async def pay(ctx: Context) -> str:
        async def charge() -> str:
            paid.append(ctx.step.key)
            backend.failure, backend.fails = failure, fails
            return "paid" + "." * (2000 if large else 1)

        result = await ctx.step(charge)
        return f"{result.rstrip('.')} {await ctx.elicit('Send a receipt?', bool)}"

    return server


@failures
@pytest.mark.parametrize("large", [False, True])
async def test_what_a_step_has_done_waits_for_the_store(failure: Exception, large: bool, tmp_path: Path) -> None:
    """Its result, where that is kept in the store, and the keys of the state, which are read for the first time."""
    backend, paid = Troubled(tmp_path / "state.db"), list[str]()
    server = paying(backend, failure, 3, paid, large=large)
    async with Client(server, era="2026", on_elicit=lambda form: {"value": True}) as client:
        assert (await client.call_tool("pay")).text == "paid True"
    assert len(paid) == 1
    assert not backend.fails
    await backend.close()


@failures
@pytest.mark.parametrize("large", [False, True])
async def test_nobody_is_told_to_repeat_a_call_whose_step_ran(
    failure: Exception, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemel.server.elicitation.request_state.PATIENCE", 0.0)
    backend, paid = Troubled(tmp_path / "state.db"), list[str]()
    server = paying(backend, failure, 1000, paid, large=large)
    async with Client(server, era="2026", on_elicit=lambda form: {"value": True}) as client:
        with pytest.raises(PeerError, match="the outcome is unknown") as caught:
            await client.call_tool("pay")
    assert caught.value.code == 504
    assert len(paid) == 1
    backend.fails = 0
    await backend.close()
