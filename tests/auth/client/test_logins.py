"""Which credentials go where: other authorization servers, rejected clients, other loops; and that nothing secret gets out."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from gemel import AuthorizationFailed, Client, ClientGroup, HttpStatus, sync
from gemel.auth import MemoryTokenStore, OAuth
from gemel.auth.client import oauth
from gemel.testing import Recording
from tests.auth.double import AuthDouble, Reply
from tests.observed import Observed, observing
from tests.transports.scripted_http import Asked

observed = pytest.fixture(observing)


def secrets_of(double: AuthDouble) -> set[str]:
    """Everything that only the two ends of a login should know."""
    found = {*double.tokens, *double.refresh_tokens, *double.codes}
    found |= {client["client_secret"] for client in double.clients.values() if "client_secret" in client}
    for form in double.forms("/token"):
        found |= {form[name] for name in ("code", "code_verifier", "refresh_token") if name in form}
    return found | {query["state"] for query in double.authorizations()}


async def test_another_authorization_server_gets_nothing_of_the_old_one() -> None:
    """AUTHC-13, AUTHC-26."""
    async with AuthDouble() as first, AuthDouble() as second:
        store = MemoryTokenStore()
        options: dict[str, Any] = {"authorizer": first.person(), "store": store}
        async with Client(first.url, auth=OAuth(**options)) as client:
            await client.list_tools()
            old = secrets_of(first)
            first.resource_metadata["authorization_servers"] = [second.issuer]
            first.tokens.clear()
            first.tokens = second.tokens  # from now on the server takes tokens of the second one only
            second.metadata["issuer"] = second.issuer
            await client.list_tools()
        assert len(second.clients) == 1
        sent = [f"{asked.path} {asked.headers} {asked.body.decode()}" for asked in second.authority.asked]
        assert not [secret for secret in old for text in sent if secret in text]
        assert [form["grant_type"] for form in first.forms("/token")] == ["authorization_code"]
        tokens_sent = [asked.headers.get("authorization", "") for asked in first.server.asked]
        assert tokens_sent[-1].removeprefix("Bearer ") in second.tokens


async def test_a_client_that_was_registered_at_the_old_server_is_an_error_at_a_new_one() -> None:
    """AUTHC-26."""
    async with AuthDouble() as first, AuthDouble() as second:
        first.clients["mine"] = second.clients["mine"] = {
            "redirect_uris": ["http://localhost:8765/callback"],
            "client_secret": "my-secret",
        }
        options: dict[str, Any] = {"client_id": "mine", "client_secret": "my-secret", "authorizer": first.person()}
        async with Client(first.url, auth=OAuth(**options)) as client:
            await client.list_tools()
            first.resource_metadata["authorization_servers"] = [second.issuer]
            first.tokens.clear()
            with pytest.raises(AuthorizationFailed, match="If it is registered with the new one, too, say so"):
                await client.list_tools()
        assert "/token" not in second.paths(second.authority)
        assert "/register" not in [*first.paths(first.authority), *second.paths(second.authority)]


@pytest.mark.parametrize("earlier", [False, True])
async def test_the_secret_of_a_client_is_not_sent_to_the_authorization_server_of_another_server(earlier: bool) -> None:
    """One object for two servers. The first login may be one of an earlier process."""
    store = MemoryTokenStore()

    def secret(person: Any) -> OAuth:
        return OAuth(client_id="mine", client_secret="my-secret", authorizer=person, store=store)

    async with AuthDouble() as first, AuthDouble() as second:
        first.clients["mine"] = second.clients["mine"] = {"redirect_uris": ["*"], "client_secret": "my-secret"}
        auth = secret(first.person())
        async with Client(first.url, auth=auth) as client:
            await client.list_tools()
        if earlier:
            auth = secret(first.person())
            async with Client(first.url, auth=auth) as client:
                await client.list_tools()
        with pytest.raises(AuthorizationFailed, match=f"used at '{first.issuer}' for .*issuer="):
            async with Client(second.url, auth=auth) as client:
                await client.list_tools()
        assert "/token" not in second.paths(second.authority)
        named = OAuth(client_id="mine", client_secret="my-secret", authorizer=second.person(), issuer=second.issuer)
        async with Client(second.url, auth=named) as client:
            await client.list_tools()


async def test_a_client_that_is_no_longer_known_is_registered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTHC-24."""
    monkeypatch.setattr(oauth, "LOGIN_PAUSE", 0)
    async with AuthDouble() as double, Client(double.url, auth=OAuth(authorizer=double.person())) as client:
        await client.list_tools()
        double.tokens.clear()

        def rejecting(asked: Asked) -> Reply:
            if b"client_id=client-1" in asked.body:
                return Reply(401, {"error": "invalid_client"})
            return double.answer_token(asked)

        double.change("/token", rejecting)
        await client.list_tools()
        assert list(double.clients) == ["client-1", "client-2"]
        assert [query["client_id"] for query in double.authorizations()] == ["client-1", "client-2"]


async def test_a_document_is_the_client_where_the_server_takes_documents() -> None:
    """AUTHC-22, AUTHC-23."""
    document = "https://app.example.com/client.json"
    async with AuthDouble() as double:
        double.metadata["client_id_metadata_document_supported"] = True
        double.clients[document] = {"redirect_uris": ["http://localhost:8765/callback"]}
        async with Client(double.url, auth=OAuth(client_metadata_url=document, authorizer=double.person())) as client:
            await client.list_tools()
        assert "/register" not in double.paths(double.authority)
        assert double.forms("/token")[0]["client_id"] == document


@pytest.mark.parametrize("url", ["http://login.example.com/register", "https://10.0.0.1/register", "/register"])
async def test_a_registration_endpoint_that_must_not_be_used_matters_only_without_a_client(url: str) -> None:
    """AUTHC-28."""
    async with AuthDouble() as double:
        double.clients["mine"] = {"redirect_uris": ["*"]}
        double.metadata["registration_endpoint"] = url
        with pytest.raises(AuthorizationFailed, match=r"registers no clients by itself \(.+\)"):
            async with Client(double.url, auth=OAuth(authorizer=double.person())) as client:
                await client.list_tools()
        async with Client(double.url, auth=OAuth(client_id="mine", authorizer=double.person())) as client:
            await client.list_tools()


@pytest.mark.parametrize(
    ("challenge", "supported", "server", "options", "expected"),
    [
        (None, None, None, {}, None),
        (None, ["a", "b"], None, {}, "a b"),
        ("c", ["a", "b"], None, {}, "c"),
        ("c", ["a", "b"], ["a", "offline_access"], {}, "c offline_access"),
        (None, None, ["offline_access"], {}, None),
        (None, ["a", "offline_access"], ["a"], {}, "a"),
        (None, ["a"], None, {"scopes": ["x"]}, "x"),
        ("c", ["a"], None, {"scopes": ["x"]}, "x c"),
    ],
)
async def test_scopes_are_chosen(
    challenge: str | None, supported: Any, server: Any, options: dict[str, Any], expected: str | None
) -> None:
    """AUTHC-14, AUTHC-15, AUTHC-27: the challenge, else what the resource names, else none."""
    async with AuthDouble() as double:
        if challenge is not None:
            assert double.challenge is not None
            double.challenge += f', scope="{challenge}"'
        double.resource_metadata["scopes_supported"] = supported
        double.metadata["scopes_supported"] = server
        async with Client(double.url, auth=OAuth(authorizer=double.person(), **options)) as client:
            await client.list_tools()
        assert double.authorizations()[0].get("scope") == expected
        assert double.clients["client-1"]["grant_types"] == ["authorization_code", "refresh_token"]


async def test_the_handshake_era_logs_in_and_keeps_its_session() -> None:
    async with AuthDouble() as double:
        sessions: list[str] = []

        def handshake(asked: Asked) -> Reply:
            reply = double.answer_mcp(asked)
            if reply.status == 404 and asked.message["method"] == "initialize":
                sessions.append(f"session-{len(sessions)}")
                info = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "serverInfo": {"name": "x", "version": "1"},
                }
                result = {"jsonrpc": "2.0", "id": asked.message["id"], "result": info}
                return Reply(200, result, {"mcp-session-id": sessions[-1]})
            return reply

        double.change("/mcp", handshake)
        async with Client(double.url, era="2025", auth=OAuth(authorizer=double.person())) as client:
            await client.list_tools()
            double.tokens.clear()
            await client.list_tools()
        assert (len(double.opened), len(sessions)) == (1, 1)


async def test_one_failure_serves_all_requests_that_were_refused_together() -> None:
    async with AuthDouble() as double, Client(double.url, auth=OAuth(authorizer=double.person())) as client:
        await client.list_tools()
        double.tokens.clear()
        double.refresh_tokens.clear()
        double.redirect_changes = {"code": None, "error": "access_denied"}
        outcomes = await asyncio.gather(*(client.call_tool("read") for _ in range(10)), return_exceptions=True)
        assert all(isinstance(outcome, AuthorizationFailed) for outcome in outcomes)
        assert len(double.opened) <= 2


async def test_a_group_goes_on_without_the_server_that_nobody_logs_in_to() -> None:
    async with AuthDouble() as double, AuthDouble() as broken:
        broken.redirect_changes = {"code": None, "error": "access_denied"}
        auth = OAuth(authorizer=double.person())
        async with ClientGroup({"good": double.url, "broken": broken.url}, auth=auth) as group:
            assert {tool.name for tool in await group.list_tools()} == {"read", "write"}


async def test_threads_with_loops_of_their_own_share_a_login() -> None:
    async with AuthDouble() as double:
        auth = OAuth(authorizer=double.person())
        async with Client(double.url, auth=auth) as client:
            await client.list_tools()

        def block() -> int:
            with sync.Client(double.url, auth=auth) as blocking:
                return len(blocking.list_tools())

        assert await asyncio.to_thread(block) == 2
        assert len(double.opened) == 1


async def test_clients_with_one_login_ask_one_person_once() -> None:
    async with AuthDouble() as double:
        person = double.person()
        person.ready.clear()
        auth = OAuth(authorizer=person)

        async def work() -> None:
            async with Client(double.url, auth=auth) as client:
                await client.list_tools()

        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(work())
            async with asyncio.timeout(10):
                while len(double.paths(double.authority)) < 5:  # noqa: ASYNC110  # the double has no events for it
                    await asyncio.sleep(0.01)
            person.ready.set()
        assert len(double.opened) == 1


async def test_nobody_logs_in_to_end_a_session() -> None:
    async with AuthDouble() as double:
        auth = OAuth(authorizer=double.person())

        def handshake(asked: Asked) -> Reply:
            if asked.method == "DELETE":
                return Reply(401, headers={"www-authenticate": "Bearer"})
            reply = double.answer_mcp(asked)
            if reply.status == 404:
                info = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "serverInfo": {"name": "x", "version": "1"},
                }
                result = {"jsonrpc": "2.0", "id": asked.message["id"], "result": info}
                return Reply(200, result, {"mcp-session-id": "s"})
            return reply

        double.change("/mcp", handshake)
        async with Client(double.url, era="2025", auth=auth) as client:
            await client.list_tools()
            double.refresh_tokens.clear()
        assert [asked.method for asked in double.server.asked].count("DELETE") == 1
        assert len(double.opened) == 1


async def test_a_login_can_be_made_ahead_and_forgotten() -> None:
    async with AuthDouble() as double:
        store = MemoryTokenStore()
        credentials = OAuth(authorizer=double.person(), store=store).bind(double.url)
        assert await credentials.tokens() is None
        assert (await credentials.login()).access_token in double.tokens
        await credentials.login()
        assert len(double.opened) == 1
        again = OAuth(authorizer=double.person(), store=store).bind(double.url)
        assert await again.logout()
        assert not await again.logout()
        assert await OAuth(store=store).bind(double.url).tokens() is None


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("options", [{}, {"client_id": "mine", "client_secret": "my-secret"}])
async def test_a_logout_revokes_the_tokens(options: dict[str, Any], kept: bool) -> None:
    """RFC 7009, also in a later process: a copy of the tokens is worth nothing."""
    async with AuthDouble() as double:
        double.clients["mine"] = {"redirect_uris": ["http://localhost:8765/callback"], "client_secret": "my-secret"}
        store = MemoryTokenStore()
        oauth_of_now = OAuth(authorizer=double.person(), store=store, keep_client=kept, **options)
        tokens = await oauth_of_now.bind(double.url).login()
        other = double.grant()
        later = OAuth(store=store, keep_client=kept, **({} if kept else options))
        assert await later.bind(double.url).logout()
        assert {form["token"] for form in double.forms("/revoke")} == {tokens.refresh_token, tokens.access_token}
        assert (set(double.tokens), set(double.refresh_tokens)) == ({other[0]}, {other[1]})


async def test_a_login_that_is_made_again_and_given_up_leaves_the_one_before() -> None:
    async with AuthDouble() as double:
        store = MemoryTokenStore()
        first = await OAuth(authorizer=double.person(), store=store).bind(double.url).login()
        double.redirect_changes = {"code": None, "error": "access_denied"}
        changes: list[dict[str, Any]] = [{"scopes": ["more"]}, {"client_id": "mine"}]
        for options in changes:
            double.clients["mine"] = {"redirect_uris": ["*"]}
            again = OAuth(authorizer=double.person(), store=store, keep_client=True, **options)
            with pytest.raises(AuthorizationFailed):
                await again.bind(double.url).login(again=True)
        assert await OAuth(store=store).bind(double.url).tokens() == first
        double.redirect_changes = {}
        second = (
            await OAuth(authorizer=double.person(), store=store, scopes=["more"]).bind(double.url).login(again=True)
        )
        assert second.scopes == ("more",)
        assert await OAuth(store=store).bind(double.url).tokens() == second
        third = OAuth(authorizer=double.person(), store=store, client_id="mine", keep_client=True).bind(double.url)
        assert (await third.login(again=True)).client["client_id"] == "mine"
        assert second.refresh_token in {form["token"] for form in double.forms("/revoke")}


async def test_refreshed_tokens_are_revoked_where_the_first_ones_would_have_been() -> None:
    async with AuthDouble() as double:
        double.lifetime = 0
        credentials = OAuth(authorizer=double.person(), store=MemoryTokenStore()).bind(double.url)
        first = await credentials.login()
        assert await credentials.tokens() != first
        await credentials.logout()
        assert double.refresh_tokens == {}


@pytest.mark.parametrize(
    ("change", "is_told"),
    [
        (Reply(500), True),
        (Reply(400, {"error": "unsupported_token_type"}), False),
        (Reply(302, headers={"location": "http://127.0.0.1:9/"}), True),
        (None, False),
    ],
)
async def test_a_logout_counts_here_whatever_the_authorization_server_says(
    change: Reply | None, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with AuthDouble() as double:
        if change is None:
            del double.metadata["revocation_endpoint"]
        else:
            double.change("/revoke", change)
        store = MemoryTokenStore()
        credentials = OAuth(authorizer=double.person(), store=store).bind(double.url)
        await credentials.login()
        assert await credentials.logout()
        assert store._tokens == {}
        assert ("login-not-revoked: " in caplog.text) is is_told
        assert not [secret for secret in secrets_of(double) if secret in caplog.text]


async def test_a_login_does_not_go_on_with_the_refresh_token_of_the_one_before() -> None:
    """It replaces the tokens as a whole: somebody else may have logged in."""
    async with AuthDouble() as double:
        double.needed_to_write = frozenset({"w"})
        auth = OAuth(authorizer=double.person())
        async with Client(double.url, auth=auth) as client:
            await client.list_tools()
            double.change("/token", lambda asked: _without_refresh_token(double.answer_token(asked)))
            await client.call_tool("write")
        assert len(double.opened) == 2
        tokens = await OAuth(store=auth.store).bind(double.url).tokens()
        assert tokens is not None
        assert tokens.refresh_token is None


def _without_refresh_token(reply: Reply) -> Reply:
    content = json.loads(reply.content)
    content.pop("refresh_token", None)
    return Reply(reply.status, content)


async def test_nothing_secret_gets_out(caplog: pytest.LogCaptureFixture, tmp_path: Path, observed: Observed) -> None:
    """AUTHC-29: no log, error, span, recording or representation has a token, code, verifier, state or secret."""
    caplog.set_level(logging.DEBUG)
    async with AuthDouble() as double:
        double.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        auth = OAuth(authorizer=double.person())
        shown: list[str] = []
        path = tmp_path / "recording.jsonl"
        async with Client(Recording(path, double.url, record="always", auth=auth)) as client:
            await client.list_tools()
            double.tokens.clear()
            await client.call_tool("read")
            shown += [repr(auth), repr(auth.bind(double.url)), repr(vars(auth))]
            double.tokens.clear()
            for answer in (
                Reply(400, {"error": "invalid_grant"}),
                Reply(500, b"x"),
                Reply(200, {"access_token": "a b"}),
            ):
                double.change("/token", answer)
                with pytest.raises((AuthorizationFailed, HttpStatus)) as caught:
                    await client.call_tool("read")
                shown += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
        shown += [caplog.text, path.read_text(), observed.everything()]
        assert "tools/call" in shown[-1]
        secrets = secrets_of(double)
        assert len(secrets) >= 6
        assert not [secret for secret in secrets for text in shown if secret in text]
