"""`Client(url, auth="oauth")` against a real server on loopback: discovery, registration, login, step-up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gemel import AuthorizationFailed, Client, HttpStatus, Limits
from gemel.auth import MemoryTokenStore, OAuth
from gemel.auth.client import oauth
from gemel.doctor import examine
from tests.auth.double import AuthDouble, Reply
from tests.transports.scripted_http import Answer, Asked, ScriptedServer


async def logged_in(double: AuthDouble, **options: Any) -> list[str]:
    """Log in and list the tools."""
    options.setdefault("authorizer", double.person())
    async with Client(double.url, auth=OAuth(**options)) as client:
        return [tool.name for tool in await client.list_tools()]


async def test_a_login_is_made_when_the_server_asks_for_it() -> None:
    """AUTHC-01, AUTHC-02, AUTHC-10."""
    async with AuthDouble() as double:
        assert await logged_in(double) == ["read", "write"]
        assert double.paths(double.authority) == [
            "/.well-known/oauth-authorization-server",
            "/register",
            "/authorize",
            "/token",
        ]
        assert len(double.opened) == 1
        assert double.authorizations()[0]["resource"] == double.forms("/token")[0]["resource"] == double.url
        posts = [asked for asked in double.server.asked if asked.path.startswith("/mcp")]
        assert all(asked.path == "/mcp" for asked in posts)
        assert ["authorization" in asked.headers for asked in posts] == [False, True, True]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other tasks do."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # the double has no events for it
            await asyncio.sleep(0.01)


async def test_many_refusals_at_once_lead_to_one_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "LOGIN_PAUSE", 0)
    async with AuthDouble() as double, Client(double.url, auth=OAuth(authorizer=double.person())) as client:
        await client.list_tools()
        double.tokens.clear()
        double.refresh_tokens.clear()
        await asyncio.gather(*(client.call_tool("read") for _ in range(20)))
        assert len(double.opened) == 2


async def test_copies_of_a_client_share_its_login(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AuthDouble() as double:
        monkeypatch.setattr(oauth.OAuthCredentials, "_browser", lambda self, kept: double.person())
        client = Client(double.url, auth="oauth")
        for each in (client, client.copy(), client.copy()):
            async with each:
                await each.list_tools()
        assert len(double.opened) == 1


async def test_a_login_does_not_hold_up_calls_with_a_valid_token() -> None:
    async with AuthDouble() as double:
        person = double.person()
        double.needed_to_write = frozenset({"write"})
        async with Client(double.url, auth=OAuth(authorizer=person)) as client:
            await client.list_tools()
            person.ready.clear()
            writing = asyncio.create_task(client.call_tool("write"))
            await until(lambda: len(double.opened) == 2)
            await client.call_tool("read")
            assert not writing.done()
            person.ready.set()
            assert (await writing).text == "write"


async def test_missing_scopes_are_added_to_those_that_were_requested() -> None:
    """AUTHC-17."""
    async with AuthDouble() as double:
        assert double.challenge is not None
        double.challenge += ', scope="base"'
        double.needed, double.needed_to_write = frozenset({"base"}), frozenset({"edit"})
        async with Client(double.url, auth=OAuth(authorizer=double.person())) as client:
            assert (await client.call_tool("read")).text == "base"
            assert (await client.call_tool("write")).text == "base edit"
            assert [query["scope"] for query in double.authorizations()] == ["base", "base edit"]
            assert len(double.clients) == 1


async def test_a_client_that_was_registered_for_fewer_scopes_registers_anew() -> None:
    async with AuthDouble() as double:
        assert double.challenge is not None
        double.challenge += ', scope="base"'
        double.needed, double.needed_to_write = frozenset({"base"}), frozenset({"edit"})
        double.are_scopes_registered = True
        async with Client(double.url, auth=OAuth(authorizer=double.person())) as client:
            assert (await client.call_tool("write")).text == "base edit"
            assert [each["scope"] for each in double.clients.values()] == ["base", "base edit"]


async def test_a_server_that_wants_scopes_without_end_gets_few_logins() -> None:
    """AUTHC-16."""
    async with AuthDouble() as double:

        def never(asked: Any) -> Reply:
            count = len(double.opened)
            return Reply(403, headers={"www-authenticate": f'Bearer error="insufficient_scope", scope="s{count}"'})

        async with Client(double.url, auth=OAuth(authorizer=double.person())) as client:
            await client.list_tools()
            double.change(
                "/mcp", Reply(403, headers={"www-authenticate": 'Bearer error="insufficient_scope", scope="x"'})
            )
            for _ in range(5):
                with pytest.raises(HttpStatus):
                    await client.call_tool("write")
            assert len(double.opened) == 2
            double.change("/mcp", never)
            with pytest.raises(HttpStatus):
                await client.call_tool("write")
            assert len(double.opened) <= 6


async def test_a_login_that_is_refused_is_one_clear_error_without_secrets() -> None:
    async with AuthDouble() as double:
        double.redirect_changes = {"code": None, "error": "access_denied", "error_description": "no,\r\nthanks"}
        with pytest.raises(AuthorizationFailed, match=r"refuses the login: access_denied \(no,  thanks\)"):
            await logged_in(double)


async def test_a_login_is_kept_in_the_store_for_the_next_client() -> None:
    async with AuthDouble() as double:
        store = MemoryTokenStore()
        await logged_in(double, store=store)
        count = len(double.authority.asked)
        await logged_in(double, store=store)
        assert len(double.authority.asked) == count
        assert double.paths(double.server).count("/.well-known/oauth-protected-resource/mcp") == 1


async def test_a_token_that_is_refused_is_refreshed_without_a_person() -> None:
    async with AuthDouble() as double, Client(double.url, auth=OAuth(authorizer=double.person())) as client:
        await client.list_tools()
        double.tokens.clear()
        await client.list_tools()
        assert len(double.opened) == 1
        assert [form["grant_type"] for form in double.forms("/token")] == ["authorization_code", "refresh_token"]
        assert double.forms("/token")[1]["resource"] == double.url


async def test_a_login_is_given_up_when_nobody_waits_for_it() -> None:
    async with AuthDouble() as double:
        person = double.person()
        person.ready.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), Client(double.url, auth=OAuth(authorizer=person)) as client:
                await client.list_tools()
        assert len(double.opened) == 1
        await until(lambda: not [task for task in asyncio.all_tasks() if "_authorize" in repr(task)])


async def test_the_search_for_metadata_is_given_up_when_nobody_waits_for_it() -> None:
    """A server that never sends it leaves no task of a client that is closed."""

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            await asyncio.sleep(100)
        await answer.body(status=401, headers={"www-authenticate": "Bearer"})

    before = asyncio.all_tasks()
    async with ScriptedServer(script) as server:
        client = Client(server.url, auth=OAuth())
        connecting = asyncio.create_task(client.connect())
        await until(lambda: any(asked.method == "GET" for asked in server.asked))
        connecting.cancel()
        await asyncio.wait([connecting])
        await client.close()
        for _ in range(50):  # the time limit of a request would end it, too, but later
            await asyncio.sleep(0)
        assert not [task for task in asyncio.all_tasks() - before if "OAuth" in repr(task)]


async def test_a_server_that_refuses_new_tokens_gets_one_login() -> None:
    async with AuthDouble() as double:
        double.change(
            "/mcp",
            Reply(401, headers={"www-authenticate": 'Bearer error="invalid_token", error_description="audience"'}),
        )
        for _ in range(3):
            with pytest.raises(AuthorizationFailed, match=r"has just issued: invalid_token \(audience\)"):
                await logged_in(double, store=MemoryTokenStore())
        assert len(double.opened) == 3


async def test_a_person_has_longer_than_a_connection_may_take() -> None:
    async with AuthDouble() as double:
        person = double.person()
        person.ready.clear()
        limits = Limits(connect=0.6, call_idle=0.6)
        async with asyncio.TaskGroup() as group:

            async def work() -> None:
                async with Client(double.url, auth=OAuth(authorizer=person), limits=limits) as client:
                    await client.list_tools()

            task = group.create_task(work())
            await until(lambda: bool(double.opened))
            await asyncio.sleep(1.5)  # longer than any limit
            assert not task.done()
            person.ready.set()


async def test_the_name_is_enough() -> None:
    """A login by name opens the browser; here there is none, so the failure shows that it was tried."""
    async with AuthDouble() as double:
        double.change("/.well-known/oauth-authorization-server", Reply(404))
        with pytest.raises(AuthorizationFailed, match="has no metadata"):
            async with Client(double.url, auth="oauth"):
                pass


async def test_what_is_left_out_of_metadata_is_among_the_warnings_of_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AuthDouble() as double:
        double.metadata |= {"scopes_supported": "a text", "revocation_endpoint": "http://other.example/revoke"}
        async with Client(double.url, auth=OAuth(authorizer=double.person())) as client:
            await client.list_tools()
            names = {deviation.name: deviation.detail for deviation in client.warnings}
            findings = [finding.message for finding in await examine(client, ["cursor"])]
    assert names == {
        "metadata-member-left-out": "scopes_supported",
        "metadata-endpoint-left-out": names["metadata-endpoint-left-out"],
    }
    assert "revocation_endpoint" in names["metadata-endpoint-left-out"]
    for name in names:
        assert f"{name}: " in caplog.text
        assert any(message.startswith(f"{name}: ") for message in findings)


@pytest.mark.parametrize("change", ["no metadata", "no registration", "no person"])
async def test_a_login_that_fails_is_told_with_what_the_server_wants_first(change: str) -> None:
    """The class of the error says what failed."""
    async with AuthDouble() as double:
        if change == "no metadata":
            double.change("/.well-known/oauth-authorization-server", Reply(502))
        elif change == "no registration":
            double.change("/register", Reply(403, {"error": "access_denied"}))
        else:
            double.redirect_changes = {"code": None, "error": "access_denied"}
        with pytest.raises(AuthorizationFailed) as caught:
            await logged_in(double)
        assert str(caught.value).startswith(f"{double.url} wants a login (HTTP 401): ")
        assert "\n" not in str(caught.value)


async def test_a_step_up_that_fails_is_told_with_the_scopes_first() -> None:
    async with AuthDouble() as double:
        double.needed_to_write = frozenset({"edit"})
        async with Client(double.url, auth=OAuth(authorizer=double.person())) as client:
            await client.list_tools()
            double.redirect_changes = {"code": None, "error": "access_denied"}
            with pytest.raises(AuthorizationFailed, match=r" wants the scopes edit \(HTTP 403\): .*access_denied"):
                await client.call_tool("write")


async def test_options_of_the_issuer_are_kept_with_a_client_that_is_kept() -> None:
    store, keep = MemoryTokenStore(), {"keep_client": True}
    async with AuthDouble() as double:
        double.resource_metadata["authorization_servers"] = [f"{double.issuer}/"]
        chosen: dict[str, Any] = {"issuer": f"{double.issuer}/", "accept_issuers": [double.issuer]}
        await logged_in(double, store=store, **keep, **chosen, authorization_parameters={"audience": "mine"})
        double.tokens.clear()
        double.refresh_tokens.clear()
        await logged_in(double, store=store, **keep)
        assert [asked["audience"] for asked in double.authorizations()] == ["mine", "mine"]
        double.tokens.clear()
        double.refresh_tokens.clear()
        with pytest.raises(AuthorizationFailed, match="names the issuer"):
            await logged_in(double, store=MemoryTokenStore(), **keep)
