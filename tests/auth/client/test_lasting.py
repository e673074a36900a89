"""Logins that last, with the whole client: what a failed, cancelled or unfinished refresh leaves of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gemel import AuthorizationFailed, CallError, Client, NotSent
from gemel.auth import FileTokenStore, MemoryTokenStore, OAuth, Tokens, TokenStore, TokenStoreError
from tests.auth.double import AuthDouble, Reply
from tests.transports.scripted_http import Asked


@pytest.fixture
async def double() -> AsyncIterator[AuthDouble]:
    async with AuthDouble() as double:
        yield double


def client(double: AuthDouble, store: TokenStore) -> Client:
    return Client(double.url, auth=OAuth(authorizer=double.person(), store=store))


async def log_in(double: AuthDouble, store: TokenStore) -> None:
    async with client(double, store) as connected:
        await connected.call_tool("read")


async def let_expire(double: AuthDouble, store: TokenStore, seconds: float) -> Tokens:
    """Let the stored token expire in so many seconds."""
    credentials = OAuth(store=store).bind(double.url)
    await credentials.tokens()
    assert credentials._source is not None
    tokens = credentials._source.tokens
    assert tokens is not None
    now = time.time()
    tokens = msgspec.structs.replace(tokens, expires_at=now + seconds, issued_at=now + seconds - 3600)
    await store.set(credentials._source.key, tokens)
    return tokens


async def stored(double: AuthDouble, store: TokenStore) -> Tokens | None:
    return await OAuth(store=store).bind(double.url).tokens()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (503, "temporarily_unavailable"),
        (500, "server_error"),
        (400, "temporarily_unavailable"),
        (429, "slow_down"),
        (502, None),
        (500, "invalid_grant"),
    ],
)
async def test_a_temporary_failure_keeps_the_login(double: AuthDouble, status: int, error: str | None) -> None:
    store = MemoryTokenStore()
    await log_in(double, store)
    await let_expire(double, store, -1)
    double.change("/token", Reply(status, b"Bad gateway" if error is None else {"error": error}))
    with pytest.raises(CallError):
        async with client(double, store) as connected:
            await connected.call_tool("read")
    del double.changes["/token"]
    await log_in(double, store)
    assert len(double.opened) == 1, "nobody had to log in again"


@pytest.mark.parametrize(
    ("status", "error"), [(400, "invalid_grant"), (400, "bad_refresh_token"), (404, None), (410, None)]
)
async def test_a_login_that_is_over_is_asked_for_anew(double: AuthDouble, status: int, error: str | None) -> None:
    """It was revoked, or the authorization server has moved: without that a login could never be made again."""
    store = MemoryTokenStore()
    await log_in(double, store)
    await let_expire(double, store, -1)
    right = double.answer_token
    over = Reply(status, b"Not Found" if error is None else {"error": error})
    double.change("/token", lambda asked: over if b"grant_type=refresh_token" in asked.body else right(asked))
    await log_in(double, store)
    assert len(double.opened) == 2


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("answer", [Reply(503), Reply(200, b"<html>"), Reply(403, b"<html>"), Reply(307)])
async def test_a_login_that_can_not_be_refreshed_is_replaced_on_demand(
    double: AuthDouble, answer: Reply, again: bool
) -> None:
    """Calls fail with one error that says so, whatever the token endpoint answers to refreshes."""
    store = MemoryTokenStore()
    await log_in(double, store)
    await let_expire(double, store, -1)
    right = double.answer_token
    double.change("/token", lambda asked: answer if b"grant_type=refresh_token" in asked.body else right(asked))
    with pytest.raises(CallError, match=r"log in again with login\(again=True\) or gemel auth login"):
        async with client(double, store) as connected:
            await connected.call_tool("read")
    credentials = OAuth(authorizer=double.person(), store=store).bind(double.url)
    assert (await credentials.login(again=again)).access_token in double.tokens
    assert len(double.opened) == 2
    await log_in(double, store)
    assert len(double.opened) == 2


@pytest.mark.parametrize("change", ["resource", "documents"])
async def test_a_login_lasts_when_a_new_one_would_be_for_another_resource_or_client(
    double: AuthDouble, change: str
) -> None:
    store, url = MemoryTokenStore(), "https://client.example.com/client.json"
    auth = OAuth(authorizer=double.person(), store=store, client_metadata_url=url)
    async with Client(double.url, auth=auth) as connected:
        await connected.call_tool("read")
    if change == "resource":
        double.resource_metadata["resource"] = double.origin
    else:
        double.metadata["client_id_metadata_document_supported"] = True
    for _ in range(2):
        double.tokens.clear()
        async with Client(double.url, auth=auth) as connected:
            await connected.call_tool("read")
    assert len(double.opened) == 1
    assert {form["resource"] for form in double.forms("/token")} == {double.url}


async def test_the_secret_of_a_client_is_not_sent_for_another_one(double: AuthDouble) -> None:
    """The login of the client before is refreshed as that client."""
    store = MemoryTokenStore()
    for name in ("first", "second"):
        double.clients[name] = {"redirect_uris": ["*"], "client_secret": f"secret of {name}"}
        auth = OAuth(
            authorizer=double.person(),
            store=store,
            keep_client=True,
            client_id=name,
            client_secret=f"secret of {name}",
            auth_method="client_secret_post",
        )
        async with Client(double.url, auth=auth) as connected:
            await connected.call_tool("read")
        for key, tokens in list(store._tokens.items()):
            if tokens.access_token:
                await store.set(key, msgspec.structs.replace(tokens, expires_at=time.time() - 1))
    assert all(form["client_secret"] == f"secret of {form['client_id']}" for form in double.forms("/token"))


def damage(folder: Path, which: slice) -> None:
    files = sorted(folder.glob("*.login"))
    assert len(files) == 2
    for file in files[which]:
        file.write_bytes(b"damaged")


@pytest.mark.parametrize("damaged", [(0, 2), (0, 1), (1, 2)])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("logs_out", [False, True])
async def test_a_login_that_can_not_be_read_is_replaced_on_demand(
    double: AuthDouble, tmp_path: Path, damaged: tuple[int, int], logs_out: bool, again: bool
) -> None:
    store = FileTokenStore(tmp_path)
    await log_in(double, store)
    damage(tmp_path, slice(*damaged))
    with pytest.raises(CallError, match="log in again"):
        await log_in(double, FileTokenStore(tmp_path))
    credentials = OAuth(authorizer=double.person(), store=FileTokenStore(tmp_path)).bind(double.url)
    if logs_out:
        await credentials.logout()
    assert (await credentials.login(again=again)).access_token in double.tokens
    await log_in(double, FileTokenStore(tmp_path))
    assert len(double.opened) == 2 or damaged != (0, 2)  # one may be enough to go on with


async def test_somebody_can_log_in_again_at_once(double: AuthDouble) -> None:
    credentials = OAuth(authorizer=double.person()).bind(double.url)
    first = await credentials.login()
    assert (await credentials.login()).access_token == first.access_token
    assert (await credentials.login(again=True)).access_token != first.access_token
    assert len(double.opened) == 2
    double.change("/token", Reply(400, {"error": "invalid_grant"}))
    with pytest.raises(AuthorizationFailed, match="invalid_grant"):
        await credentials.login(again=True)
    del double.changes["/token"]
    await credentials.login(again=True)


async def test_a_refused_token_is_refreshed_although_metadata_can_not_be_read(double: AuthDouble) -> None:
    store = MemoryTokenStore()
    await log_in(double, store)
    double.tokens.clear()
    double.change("/.well-known/oauth-protected-resource/mcp", Reply(503))
    await log_in(double, store)
    assert len(double.opened) == 1
    double.tokens.clear()
    double.refresh_tokens.clear()
    with pytest.raises(AuthorizationFailed, match="HTTP 503"):
        await log_in(double, store)


@pytest.mark.parametrize("answer", [Reply(401, {"error": "invalid_client"}), Reply(401, b"<html>")])
async def test_another_process_registers_a_client_that_is_unknown_anew(double: AuthDouble, answer: Reply) -> None:
    """The page that refuses an unknown client sends nobody back, so a later login could not find out."""
    store = MemoryTokenStore()
    await log_in(double, store)
    await let_expire(double, store, -1)
    double.clients.clear()
    double.tokens.clear()
    double.change("/token", answer)
    assert await stored(double, store) is None
    del double.changes["/token"]
    await log_in(double, store)
    assert [query["client_id"] for query in double.authorizations()] == ["client-1", "client-1"]
    assert double.paths(double.authority).count("/register") == 2


async def test_a_client_that_closes_waits_for_its_refresh(double: AuthDouble, tmp_path: Path) -> None:
    """A token that expires soon is refreshed beside the call; the answer has the next refresh token."""
    store = FileTokenStore(tmp_path)
    await log_in(double, store)
    old = await let_expire(double, store, 30)
    right = double.answer_token

    async def slow(asked: Asked) -> Reply:
        await asyncio.sleep(0.3)
        return right(asked)

    double.change("/token", slow)
    await log_in(double, store)
    tokens = await stored(double, store)
    assert tokens is not None
    assert tokens.refresh_token in double.refresh_tokens
    assert tokens.access_token != old.access_token
    assert len(double.opened) == 1


async def test_a_call_that_is_cancelled_loses_no_login(double: AuthDouble, tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    await log_in(double, store)
    await let_expire(double, store, -1)
    arrived = asyncio.Event()
    right = double.answer_token

    async def slow(asked: Asked) -> Reply:
        arrived.set()
        await asyncio.sleep(0.3)
        return right(asked)

    double.change("/token", slow)
    calling = asyncio.create_task(log_in(double, store))
    await arrived.wait()
    calling.cancel()
    await asyncio.wait([calling])
    tokens = await stored(double, store)
    assert tokens is not None
    assert tokens.refresh_token in double.refresh_tokens
    assert len(double.opened) == 1


async def test_a_damaged_store_fails_the_call_with_one_clear_line(double: AuthDouble, tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    await log_in(double, store)
    for path in tmp_path.glob("*.login"):  # noqa: ASYNC240  # a small file
        path.write_bytes(b"damaged")
    with pytest.raises((CallError, TokenStoreError), match=r"is not a login of this version of Gemel: delete it"):
        await log_in(double, store)


async def test_nobody_is_asked_while_a_login_can_be_refreshed(double: AuthDouble) -> None:
    class Nobody:
        redirect_uri = "http://localhost:8765/callback"

        async def authorize(self, url: str) -> str:
            raise AuthorizationFailed("nobody is here")

    store = MemoryTokenStore()
    await log_in(double, store)
    double.tokens.clear()
    async with Client(double.url, auth=OAuth(authorizer=Nobody(), store=store)) as connected:
        await connected.call_tool("read")
    double.tokens.clear()
    double.refresh_tokens.clear()
    with pytest.raises((AuthorizationFailed, NotSent), match="nobody is here"):
        async with Client(double.url, auth=OAuth(authorizer=Nobody(), store=store)) as connected:
            await connected.call_tool("read")
