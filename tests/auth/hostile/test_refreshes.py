"""Runs `refreshes.py` against the client."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from gemel import CallError, Client
from gemel.auth import MemoryTokenStore, OAuth
from tests.auth.double import AuthDouble
from tests.auth.hostile.refreshes import RefreshCase, refresh_cases

CASES = list(refresh_cases())


def test_there_are_many_cases_and_each_has_a_name_of_its_own() -> None:
    assert len(CASES) >= 45
    assert len({case.name for case in CASES}) == len(CASES)


async def call(double: AuthDouble, store: MemoryTokenStore) -> None:
    async with asyncio.timeout(20):
        async with Client(double.url, auth=OAuth(authorizer=double.person(), store=store)) as client:
            await client.call_tool("read")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_refresh_can_not_be_misused(case: RefreshCase, caplog: Any) -> None:
    """A login ends only if the authorization server says so; nothing else is asked, sent on or shown."""
    caplog.set_level("DEBUG")
    store = MemoryTokenStore()
    async with AuthDouble() as double:
        await call(double, store)
        ((key, tokens),) = [item for item in store._tokens.items() if item[1].access_token]
        await store.set(key, msgspec.structs.replace(tokens, expires_at=time.time() - 1))
        double.tokens.clear()
        case.prepare(double)
        error: Exception | None = None
        try:
            await call(double, store)
        except CallError as exc:
            error = exc
        assert (error is None) == case.works, error
        assert len(double.opened) == (2 if case.over else 1)
        refreshes = [form for form in double.forms("/token") if form["grant_type"] == "refresh_token"]
        assert 1 <= len(refreshes) <= 5, "a refresh is not repeated without end"
        assert "/stolen" not in double.paths(double.authority), "a refresh token follows no redirect"
        if not case.works:
            kept = await store.get(key)
            assert kept is not None
            assert kept.refresh_token == tokens.refresh_token, "the login is kept for another attempt"
            del double.changes["/token"]
            await call(double, store)
            assert len(double.opened) == 1, "nobody had to log in again"
        secrets = [tokens.access_token, str(tokens.refresh_token), *double.tokens, *double.refresh_tokens]
        shown = caplog.text + (f"{error}{error!r}" if error is not None else "")
        assert not [secret for secret in secrets if secret in shown]
        assert error is None or (len(str(error)) < 1500 and str(error).isprintable())
