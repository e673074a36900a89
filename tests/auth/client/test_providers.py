"""Logins at identity providers as they are: each is played by the double, with the facts of `tests/auth/providers.py`."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from gemel import AuthorizationFailed, Client
from gemel.auth import MemoryTokenStore, OAuth
from tests.auth.double import AuthDouble, Reply
from tests.auth.providers import PROVIDERS, Facts
from tests.transports.scripted_http import Asked

PAGE = Path(__file__).resolve().parents[3] / "docs" / "identity-providers.md"
PATHS = {"oauth": "/.well-known/oauth-authorization-server", "openid": "/.well-known/openid-configuration"}


def play(double: AuthDouble, facts: Facts) -> None:
    """Let the double be like a provider at which one client is registered."""
    double.clients["mine"] = {"redirect_uris": ["*"], "client_secret": "secret"}
    del double.metadata["registration_endpoint"]
    del double.metadata["authorization_response_iss_parameter_supported"]
    del double.metadata["code_challenge_methods_supported"]
    double.redirect_changes = {"iss": None}
    if facts.pkce is not None:
        double.metadata["code_challenge_methods_supported"] = list(facts.pkce)
    for form, path in PATHS.items():
        double.change(path, Reply(200, double.metadata) if form in facts.documents else Reply(404))
    if facts.issuer_in_resource:
        double.resource_metadata["authorization_servers"] = [double.issuer + facts.issuer_in_resource]

    def token(asked: Asked) -> Reply:
        form = dict(parse_qsl(asked.body.decode()))
        page = dict(parse_qsl(urlsplit(double.opened[-1]).query))
        has_resource = "resource" in form or "resource" in page
        if facts.resource == "refused" and has_resource:
            return Reply(400, {"error": "invalid_target", "error_description": "AADSTS9010010: resource"})
        if facts.resource == "needed" and not has_resource:
            return Reply(400, {"error": "invalid_request", "error_description": "resource is needed"})
        if form["grant_type"] == "refresh_token" and form["refresh_token"] not in double.refresh_tokens:
            is_odd = bool(facts.answers)
            return Reply(200 if is_odd else 400, {"error": "bad_refresh_token"} if is_odd else {"detail": "no"})
        is_complete = facts.needed.items() <= page.items()
        if not is_complete and "audience" in facts.needed:
            return Reply(400, {"error": "access_denied", "error_description": "Service not found"})
        access, refresh = double.grant("a", "b")
        answer: dict[str, Any] = {"access_token": access, "token_type": "Bearer", "expires_in": 3600}
        if is_complete:
            answer["refresh_token"] = refresh
        if "commas" in facts.answers:
            answer["scope"] = "a,b"
        return Reply(200, answer)

    double.change("/token", token)


async def call(double: AuthDouble, facts: Facts, store: MemoryTokenStore, **options: Any) -> None:
    issuer = double.issuer + facts.issuer_in_resource
    login = OAuth(
        client_id="mine",
        client_secret="secret",
        issuer=issuer,
        accept_issuers=[double.issuer],
        scopes=["a", "b"],
        authorizer=double.person(),
        store=store,
        **options,
    )
    async with Client(double.url, auth=login) as client:
        await client.call_tool("read")


@pytest.mark.parametrize("facts", PROVIDERS, ids=lambda facts: facts.name)
async def test_a_login_at_a_provider_works_and_lasts(facts: Facts) -> None:
    """Also in another process, which refreshes it, and after the provider has forgotten the refresh token."""
    store = MemoryTokenStore()
    async with AuthDouble() as double:
        play(double, facts)
        await call(double, facts, store, **facts.options)
        ((key, tokens),) = [item for item in store._tokens.items() if item[1].access_token]
        assert tokens.scopes == ("a", "b")
        for logins, is_known in ((1, True), (2, False)):
            newest = await store.get(key)
            assert newest is not None
            await store.set(key, msgspec.structs.replace(newest, expires_at=time.time() - 1))
            double.tokens.clear()
            if not is_known:
                double.refresh_tokens.clear()
            await call(double, facts, store, **facts.options)
            assert len(double.opened) == logins


@pytest.mark.parametrize(
    "facts",
    [facts for facts in PROVIDERS if {"resource", "assume_pkce"} & set(facts.options)],
    ids=lambda facts: facts.name,
)
async def test_what_a_provider_needs_is_not_tried_by_itself(facts: Facts) -> None:
    async with AuthDouble() as double:
        play(double, facts)
        with pytest.raises(AuthorizationFailed):
            await call(double, facts, MemoryTokenStore())
        assert not double.tokens


def test_the_page_says_what_each_provider_needs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    for facts in PROVIDERS:
        section = sections[facts.name]
        assert not [option for option in facts.options if f"{option}=" not in section], facts.name
        assert not [source for source in facts.sources if source not in section], facts.name
