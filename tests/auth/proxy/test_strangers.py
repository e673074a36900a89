"""What people who never log in can use up: nothing that others need, from one address or one network."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gemel.auth.client.token_request import ASSERTION_TYPE
from gemel.auth.jose import generate_key, public_jwk, sign_jwt
from gemel.auth.server.proxy import documents, proxy, registration
from gemel.auth.server.shared_work import GaveWay, SharedWork
from gemel.backends import MemoryBackend
from gemel.shares import address_share
from tests.auth.hostile.cases import Request, Response
from tests.auth.hostile.wire import exchange
from tests.auth.proxy.rig import CALLBACK, Browser, Rig, query_of, read_form, rig, serve_idp, serve_proxy
from tests.cluster.keys import keys_in
from tests.ports import free_port

LOOPBACK = ("127.0.0.1",)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - the state of a server in the same loop
            await asyncio.sleep(0.01)


async def begin(site: Rig, client_id: str, browser: Browser) -> str:
    """Begin a login and agree. Returns the URL of the callback, with a code that the provider never gave."""
    _, page = await browser.open(site.authorize_url(client_id))
    url, _ = await browser.submit(page, until=f"{site.idp.issuer}/authorize")
    return f"{site.issuer}/auth/callback?state={query_of(url)['state']}&code=x"


# ---------------------------------------------------------------- what is stored


async def test_nothing_is_stored_for_people_who_do_not_log_in(tmp_path: Path) -> None:
    """All that somebody can do who registers clients, serves documents and keys, and agrees to each login."""
    url = f"sqlite:///{tmp_path}/state.db"
    async with rig(backend=url, remember_consent=3600) as site:
        assert (await site.tokens())["access_token"]
        before = await keys_in(url)
        assert sum("oauth-proxy" in key for key in before) == 2  # a grant, and a consent
        site.idp.refuses = "invalid_grant"
        for number in range(3):
            client_id, browser = await site.register(client_name=f"Client {number}"), Browser()
            callback = await begin(site, client_id, browser)
            for sent in (callback, callback.replace("code=x", "error=access_denied")):
                url_back, _ = await browser.open(sent)
                assert query_of(url_back)["error"] == "access_denied"
            _, page = await browser.open(site.authorize_url(client_id))
            await browser.submit(page, "deny")
            for form in (
                {"grant_type": "authorization_code", "code": "a" * 120, "code_verifier": "b" * 43},
                {"grant_type": "refresh_token", "refresh_token": "a" * 120},
            ):
                assert (await site.post("/token", {"client_id": client_id, **form})).status == 400
            await site.post("/revoke", {"client_id": client_id, "token": "a" * 120})
        client_id, sign = signer(site)
        for number in range(3):
            form = {"grant_type": "refresh_token", "refresh_token": "a" * 120}
            assert (await site.post("/token", {"client_id": client_id, **form, **sign(number)})).status == 400
        assert await keys_in(url) == before


async def test_a_flood_of_logins_that_nobody_ends_disturbs_nobody() -> None:
    backend = MemoryBackend(max_entries=3)
    async with rig(backend=backend, trusted_proxies=LOOPBACK) as site:
        client_id = await site.register()
        tokens = await site.tokens(client_id)
        attacker = Browser("192.0.2.1")
        for _ in range(100):
            await begin(site, client_id, attacker)
        assert (await site.refresh(client_id, tokens["refresh_token"])).status == 200
        assert "code" in await site.login(client_id, Browser("192.0.2.2"))
        assert "code" in await site.login(client_id, attacker)


async def test_a_flood_of_registrations_keeps_nobody_out() -> None:
    async with rig() as site:
        ids = {await site.register(f"https://a{number}.test/", client_name="A") for number in range(100)}
        assert len(ids) == 100
        assert "code" in await site.login(await site.register(client_name="A newcomer"))


def signer(site: Rig) -> tuple[str, Callable[[object], dict[str, str]]]:
    """Publish the document of a client that signs assertions. Returns its id, and what signs one."""
    key = generate_key("ES256", kid="one")
    client_id = f"{site.idp.issuer}/clients/signs.json"
    document = {
        "client_id": client_id,
        "redirect_uris": [CALLBACK],
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks_uri": f"{site.idp.issuer}/clients/keys.json",
    }
    site.idp.documents["/clients/signs.json"] = lambda: (200, json.dumps(document).encode())
    site.idp.documents["/clients/keys.json"] = lambda: (200, json.dumps({"keys": [public_jwk(key)]}).encode())

    def sign(number: object) -> dict[str, str]:
        claims = {"iss": client_id, "sub": client_id, "aud": site.issuer, "exp": time.time() + 60, "jti": str(number)}
        return {"client_assertion": sign_jwt(claims, key), "client_assertion_type": ASSERTION_TYPE}

    return client_id, sign


async def test_what_exists_is_used_while_the_store_is_full() -> None:
    """One login fills the store: it is exchanged, refreshed, used and ended, whether the client signs or not."""
    async with rig(backend=MemoryBackend(max_entries=1)) as site:
        site.idp.expires_in = 0
        tokens = await site.tokens()
        for _ in range(3):
            answer = await site.refresh(tokens["client_id"], tokens["refresh_token"])
            assert answer.status == 200, answer
            tokens |= json.loads(answer.body)
            assert (await site.call(tokens["access_token"], "upstream")).status == 200
        revoked = {"client_id": tokens["client_id"], "token": tokens["access_token"]}
        assert (await site.post("/revoke", revoked)).status == 200

        client_id, sign = signer(site)
        code = (await site.login(client_id))["code"]
        answer = await site.exchange_code(client_id, code, **sign("code"))
        assert answer.status == 200, answer
        for number in range(3):
            token = json.loads(answer.body)["refresh_token"]
            answer = await site.refresh(client_id, token, **sign(number))
            assert answer.status == 200, answer
        token = json.loads(answer.body)["refresh_token"]
        assert (await site.refresh(client_id, token, **sign(0))).status == 401


# ---------------------------------------------------------------- documents of clients


def publish(site: Rig, name: str, *, held: bool = False) -> str:
    """Publish the document of a client; one that is held never arrives. Returns the client id."""
    path = f"/clients/{name}"
    client_id = f"{site.idp.issuer}{path}"
    document = json.dumps({"client_id": client_id, "client_name": name, "redirect_uris": [CALLBACK]}).encode()
    site.idp.documents[path] = lambda: (200, document)
    if held:
        site.idp.held[path] = asyncio.Event()
    return client_id


async def open_page(site: Rig, client_id: str, address: str) -> Response:
    return (await Browser(address).open(site.authorize_url(client_id)))[1]


@asynccontextmanager
async def tarpit(site: Rig, *addresses: str) -> AsyncIterator[list[asyncio.Task[Response]]]:
    """Ask for documents that never arrive, one from each address, oldest first."""
    requests = []
    for number, address in enumerate(addresses):
        name = f"held-{number}"
        client_id = publish(site, name, held=True)
        requests.append(asyncio.create_task(open_page(site, client_id, address)))
        await until(partial(site.idp.requests.__contains__, (f"/clients/{name}", {})))
    try:
        yield requests
    finally:
        for event in site.idp.held.values():
            event.set()
        await asyncio.gather(*requests)


@pytest.mark.parametrize(
    "addresses",
    [["192.0.2.1"] * 6, [f"2001:db8:1:2::{number}" for number in range(6)], ["unknown"] * 6],
    ids=["an address", "a network of IPv6", "nobody knows where"],
)
async def test_documents_that_never_arrive_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    monkeypatch.setattr(registration, "_FETCHES", 4)
    async with rig(trusted_proxies=LOOPBACK) as site, tarpit(site, *addresses) as requests:
        gone = await asyncio.gather(*requests[:2])  # those that came first have made room for the last two
        assert [(page.status, page.all("retry-after")) for page in gone] == [(503, ["5"])] * 2
        for number in range(3):
            page = await open_page(site, publish(site, f"good-{number}"), f"198.51.100.{number}")
            assert page.status == 200, page
        assert not requests[-1].done()


async def test_the_address_that_fetches_most_gives_way() -> None:
    work: SharedWork[str] = SharedWork(4)
    held = {name: asyncio.Event() for name in "abcde"}

    async def fetch(name: str) -> str:
        await held[name].wait()
        return name

    def ask(name: str, address: str) -> asyncio.Task[str]:
        return asyncio.create_task(work.run(name, address_share(address), lambda: fetch(name)))

    single = ask("a", "192.0.2.9")
    most = [ask(name, "192.0.2.1") for name in "bcd"]
    joined = ask("b", "192.0.2.8")  # waits for what the other address began
    await asyncio.sleep(0)
    newcomer = ask("e", "192.0.2.7")
    for gone in most[:2]:  # the second one makes room for what `joined` begins anew
        with pytest.raises(GaveWay):
            await gone
    for event in held.values():
        event.set()
    assert list(await asyncio.gather(single, newcomer, joined, most[2])) == ["a", "e", "b", "d"]


async def test_a_fetch_ends_with_the_last_one_who_waits_for_it() -> None:
    ended = asyncio.Event()
    opened: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        await reader.read()  # to its end
        ended.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client_id = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/never"
    async with server, rig() as site:
        requests = []
        for _ in range(2):
            _, writer = await asyncio.open_connection("127.0.0.1", site.port)
            path = site.authorize_url(client_id).removeprefix(site.issuer)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
            requests.append(writer)
        await until(lambda: bool(opened))
        requests[0].close()
        assert (await site.get("/.well-known/oauth-authorization-server")).status == 200
        assert not ended.is_set()
        requests[1].close()
        async with asyncio.timeout(5):
            await ended.wait()
        assert len(opened) == 1


async def test_a_document_that_many_ask_for_is_fetched_once() -> None:
    async with rig() as site:
        client_id = publish(site, "app", held=True)
        requests = [asyncio.create_task(open_page(site, client_id, f"192.0.2.{number}")) for number in range(10)]
        await until(lambda: bool(site.idp.count("/clients/app")))
        site.idp.held["/clients/app"].set()
        assert {page.status for page in await asyncio.gather(*requests)} == {200}
        assert site.idp.count("/clients/app") == 1


async def test_one_address_does_not_push_out_the_documents_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_DOCUMENTS", 8)
    async with rig(trusted_proxies=LOOPBACK) as site:
        good = publish(site, "good")
        assert (await open_page(site, good, "192.0.2.1")).status == 200
        for number in range(20):
            await open_page(site, publish(site, f"other-{number}"), "198.51.100.1")
            await open_page(site, f"{site.idp.issuer}/clients/missing-{number}", "198.51.100.1")
        assert (await open_page(site, good, "192.0.2.1")).status == 200
        assert site.idp.count("/clients/good") == 1


async def test_a_document_is_used_while_it_can_not_be_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_DOCUMENT_SECONDS", 0.0)
    monkeypatch.setattr(documents, "_FAILURE_SECONDS", 0.0)
    monkeypatch.setattr(registration, "_FETCHES", 1)
    async with rig(trusted_proxies=LOOPBACK) as site:
        client_id = publish(site, "app")
        assert (await open_page(site, client_id, "192.0.2.1")).status == 200
        site.idp.held["/clients/app"] = asyncio.Event()
        request = asyncio.create_task(open_page(site, client_id, "192.0.2.1"))
        await until(lambda: site.idp.count("/clients/app") == 2)
        other = asyncio.create_task(open_page(site, publish(site, "other"), "192.0.2.2"))
        assert (await request).status == 200  # although its fetch gave way
        assert (await other).status == 200
        site.idp.held["/clients/app"].set()
        site.idp.documents["/clients/app"] = lambda: (200, b" " * 2_000_000)  # more than is read
        assert (await open_page(site, client_id, "192.0.2.1")).status == 200
        site.idp.documents["/clients/app"] = lambda: (404, b"")
        assert (await open_page(site, client_id, "192.0.2.1")).status == 401


# ---------------------------------------------------------------- the provider


async def test_callbacks_that_keep_the_provider_busy_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "_COMPLETIONS", 4)
    async with rig(trusted_proxies=LOOPBACK) as site:
        client_id, attacker = await site.register(), Browser("192.0.2.1")
        tokens = await site.tokens(client_id)
        callbacks = [await begin(site, client_id, attacker) for _ in range(8)]
        site.idp.held["/token"] = asyncio.Event()
        requests = [asyncio.create_task(attacker.request("GET", url)) for url in callbacks]
        await until(lambda: sum(request.done() for request in requests) == 4)
        assert (await site.refresh(client_id, tokens["refresh_token"])).status == 200
        login = asyncio.create_task(site.login(client_id, Browser("192.0.2.2")))
        await until(lambda: sum(request.done() for request in requests) == 5)
        site.idp.held["/token"].set()
        assert "code" in await login
        statuses = [answer.status for answer in await asyncio.gather(*requests)]
        assert sorted(statuses) == [303] * 3 + [503] * 5


async def test_a_flood_of_pages_asks_the_provider_for_its_metadata_once() -> None:
    async with rig() as site:
        client_id, path = await site.register(), "/.well-known/openid-configuration"
        site.idp.held[path] = asyncio.Event()
        requests = [asyncio.create_task(open_page(site, client_id, f"192.0.2.{number}")) for number in range(20)]
        await until(lambda: bool(site.idp.count(path)))
        site.idp.held[path].set()
        for page in await asyncio.gather(*requests):
            read_form(page)
        assert site.idp.count(path) == 1


async def test_the_provider_is_used_while_its_metadata_can_not_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "_DISCOVERY_SECONDS", -1.0)
    async with rig() as site:
        site.idp.expires_in = 0
        tokens = await site.tokens()
        site.idp.documents["/.well-known/openid-configuration"] = lambda: (500, b"")
        assert (await site.refresh(tokens["client_id"], tokens["refresh_token"])).status == 200
        assert "code" in await site.login(tokens["client_id"])


# ---------------------------------------------------------------- what the browser carries


async def test_the_state_at_the_provider_is_short_and_tells_nothing() -> None:
    """Some providers and gateways refuse a URL of more than 2,048 characters."""
    async with rig(scopes=["notes", "notes.write"]) as site:
        uris = (
            "https://app.example.com/oauth/callback",
            "http://127.0.0.1:33418/callback",
            "http://localhost/callback",
        )
        client_id = await site.register(*uris, client_name="An application with a name")
        browser = Browser()
        _, page = await browser.open(site.authorize_url(client_id, state="s" * 100, scope="notes notes.write"))
        url, _ = await browser.submit(page, until=f"{site.idp.issuer}/authorize")
        assert len(query_of(url)["state"]) < 1000
        assert query_of(url)["state"] not in page.body.decode()


async def test_a_login_of_much_text_is_refused_before_anybody_is_asked() -> None:
    async with rig() as site:
        uris = [f"https://app.test/{'a' * 1000}"]
        client_id = await site.register(*uris)
        _, page = await Browser().open(site.authorize_url(client_id, redirect_uri=uris[0], state="s" * 2048))
        assert (page.status, page.all("location")) == (400, [])
        assert b"too long together" in page.body


async def test_several_logins_of_one_browser_end_in_any_order() -> None:
    async with rig() as site:
        browser, client_id = Browser(), await site.register()
        urls = []
        for number in range(3):
            _, page = await browser.open(site.authorize_url(client_id, state=f"state-{number}"))
            urls.append((await browser.submit(page, until=f"{site.idp.issuer}/authorize"))[0])
        states = [query_of((await browser.open(url))[0])["state"] for url in reversed(urls)]
        assert states == ["state-2", "state-1", "state-0"]
        assert len(browser.cookies[site.port]) == 1


async def test_keys_are_changed_while_somebody_logs_in() -> None:
    port, old, new = free_port(), b"o" * 32, b"n" * 32
    async with serve_idp() as idp:
        async with serve_proxy(idp, port=port, keys=[old]) as site:
            client_id, browser = await site.register(), Browser()
            _, page = await browser.open(site.authorize_url(client_id))
            _, other_page = await browser.open(site.authorize_url(client_id))
            url, _ = await browser.submit(page, until=f"{idp.issuer}/authorize")
        async with serve_proxy(idp, port=port, keys=[new, old]) as site:
            for answer in (await browser.open(url), await browser.submit(other_page)):
                assert (await site.exchange_code(client_id, query_of(answer[0])["code"])).status == 200


async def test_a_login_is_refused_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(remember_consent=3600) as site:
        browser, client_id = Browser(), await site.register()
        await site.login(client_id, browser)
        before = site.idp.count("/token")
        monkeypatch.setattr(proxy, "LOGIN_SECONDS", -1.0)
        _, page = await browser.open(site.authorize_url(client_id))
        _, late = await browser.submit(page)
        assert (late.status, late.all("location")) == (400, [])
        _, late = await browser.open(site.authorize_url(client_id), headers=(("Sec-Fetch-Site", "none"),))
        assert (late.status, late.all("location")) == (400, [])
        assert site.idp.count("/token") == before


async def test_a_wrong_registration_needs_no_room_either() -> None:
    async with rig(backend=MemoryBackend(max_entries=1)) as site:
        headers = (("Content-Type", "application/json"),)
        for body in (b"[]", b"{}"):
            assert (await exchange(site.port, Request("POST", "/register", headers, body))).status == 400


async def test_names_that_nobody_resolves_delay_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver of the system can't be cancelled: it works in threads, and asyncio has six of them on two processors."""
    answer, asked, resolve = threading.Event(), [], socket.getaddrinfo

    def getaddrinfo(host: str, *args: Any, **options: Any) -> Any:
        if not str(host).endswith(".test") or options.get("flags"):
            return resolve(host, *args, **options)
        asked.append(host)
        answer.wait(20)
        raise socket.gaierror("nobody answers")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(proxy, "_LOOKUPS", 32)
    try:
        async with rig(trusted_proxies=LOOPBACK) as site:
            requests = [
                asyncio.create_task(open_page(site, f"https://never-{number}.test/c", "192.0.2.1"))
                for number in range(20)
            ]
            await until(lambda: len(asked) == 8 and sum(request.done() for request in requests) == 12)
            assert {request.result().status for request in requests if request.done()} == {503}
            for address in ("192.0.2.3", "192.0.2.4", "192.0.2.5"):  # each takes a part of what is left
                requests += [
                    asyncio.create_task(open_page(site, f"https://never-{number}.test/{address}", address))
                    for number in range(20, 40)
                ]
            await until(lambda: sum(request.done() for request in requests) == len(requests) - len(asked))
            before = len(asked)
            other = asyncio.create_task(open_page(site, "https://other.test/c", "192.0.2.2"))
            await until(lambda: len(asked) == before + 1)
            async with asyncio.timeout(5):
                await asyncio.get_running_loop().getaddrinfo("localhost", 80)  # as for the provider
            answer.set()
            assert (await other).status == 401
            await asyncio.gather(*requests)
            assert (await open_page(site, "https://later.test/c", "192.0.2.1")).status == 401
    finally:
        answer.set()
