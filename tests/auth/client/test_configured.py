"""Logins that an entry of a configuration asks for, beside those that the application gives for all servers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, ClientGroup
from gemel.auth import OAuth
from tests.auth.double import AuthDouble

PROGRAM = """
from gemel import Server
server = Server("local")
@server.tool
def here() -> str: return "here"
server.run()
"""


def entry(double: AuthDouble, **more: Any) -> dict[str, Any]:
    return {"url": double.url, **more}


def group_of(servers: dict[str, Any], **options: Any) -> ClientGroup:
    return ClientGroup.from_config({"mcpServers": servers}, **options)


@pytest.mark.parametrize("more", [{"auth": "oauth"}, {"oauth": {}}, {}])
async def test_the_login_of_a_group_is_for_the_servers_with_a_url(tmp_path: Path, more: dict[str, Any]) -> None:
    (tmp_path / "local.py").write_text(PROGRAM)
    local = {"command": sys.executable, "args": [str(tmp_path / "local.py")]}
    async with AuthDouble() as double:
        group = group_of({"local": local, "web": entry(double, **more)}, auth=OAuth(authorizer=double.person()))
        async with group:
            assert {tool.name for tool in await group.list_tools()} == {"here", "read", "write"}
            assert (await group.call_tool("here")).text == "here"
            await group.call_tool("read")
        assert len(double.opened) == 1


async def test_an_entry_names_its_client_authorization_server_and_parameters() -> None:
    async with AuthDouble() as double:
        double.clients["mine"] = {"redirect_uris": ["*"], "client_secret": "s3cret"}
        del double.metadata["code_challenge_methods_supported"]
        oauth = {
            "clientId": "mine",
            "clientSecret": "s3cret",
            "authMethod": "client_secret_post",
            "issuer": double.issuer,
            "assumePkce": True,
            "resource": "api://notes",
            "parameters": {"audience": "notes"},
            "scopes": ["a", "b"],
            "scopeSeparator": ",",
        }
        async with group_of({"web": entry(double, oauth=oauth)}, auth=OAuth(authorizer=double.person())) as group:
            await group.call_tool("read")
        sent = double.authorizations()[0]
        assert (sent["client_id"], sent["audience"], sent["scope"]) == ("mine", "notes", "a,b")
        assert sent["resource"] == "api://notes"
        assert double.forms("/token")[0]["client_secret"] == "s3cret"
        assert "/register" not in double.paths(double.authority)


class Both:
    """A person who can log in to two authorization servers."""

    redirect_uri = "http://localhost:8765/callback"

    def __init__(self, *doubles: AuthDouble) -> None:
        self._people = {double.issuer: double.person(self.redirect_uri) for double in doubles}

    async def authorize(self, url: str) -> str:
        (person,) = [person for issuer, person in self._people.items() if url.startswith(issuer)]
        return await person.authorize(url)


async def test_a_client_of_the_application_is_not_used_at_the_authorization_server_of_an_entry() -> None:
    """A secret goes to the authorization server that it is for, and to no other one."""
    async with AuthDouble() as first, AuthDouble() as second:
        first.clients["mine"] = {"redirect_uris": ["*"], "client_secret": "s3cret"}
        auth = OAuth(client_id="mine", client_secret="s3cret", issuer=first.issuer, authorizer=Both(first, second))
        servers = {
            "first": entry(first, oauth={"scopes": ["a"]}),
            "second": entry(second, oauth={"issuer": second.issuer}),
        }
        async with group_of(servers, auth=auth) as group:
            await group.call_tool("read", server="first")
            await group.call_tool("read", server="second")
        assert [(query["client_id"], query["scope"]) for query in first.authorizations()] == [("mine", "a")]
        assert [query["client_id"] for query in second.authorizations()] == ["client-1"]
        sent = [f"{asked.headers} {asked.body.decode()}" for asked in second.authority.asked]
        assert not [text for text in sent if "s3cret" in text]


@pytest.mark.parametrize("more", [{"oauth": False}, {"headers": {"Authorization": "Bearer own"}}, {"auth": "own"}])
async def test_an_entry_without_a_login_or_with_a_token_starts_none(more: dict[str, Any]) -> None:
    async with AuthDouble() as double:
        async with group_of({"web": entry(double, **more)}, auth=OAuth(authorizer=double.person())) as group:
            assert "401" in group.failures["web"]
        assert double.opened == []


async def test_a_token_of_an_entry_is_sent() -> None:
    async with AuthDouble() as double:
        access, _ = double.grant()
        async with group_of({"web": entry(double, auth=access)}) as group:
            await group.call_tool("read")


async def test_a_client_of_one_entry_logs_in_as_the_entry_says() -> None:
    async with AuthDouble() as double:
        double.clients["mine"] = {"redirect_uris": ["*"]}
        config = {"mcpServers": {"web": entry(double, oauth={"clientId": "mine"})}}
        async with Client.from_config(config, auth=OAuth(authorizer=double.person())) as client:
            await client.call_tool("read")
        assert [query["client_id"] for query in double.authorizations()] == ["mine"]


async def test_a_client_of_one_entry_logs_in_as_the_application_says() -> None:
    async with AuthDouble() as double:
        config = {"mcpServers": {"web": entry(double, auth="oauth")}}
        async with Client.from_config(config, auth=OAuth(authorizer=double.person())) as client:
            await client.call_tool("read")
        assert len(double.opened) == 1
