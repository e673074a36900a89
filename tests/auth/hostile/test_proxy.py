"""Runs the hostile cases of the OAuth proxy against one that is served on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from gemel.auth.server.proxy.redirects import check_redirect_uri, matches
from tests.auth.hostile import proxy
from tests.auth.hostile.cases import Request, Response, problem
from tests.auth.hostile.wire import exchange
from tests.auth.proxy.rig import FORM, VERIFIER, WEB_CALLBACK, Browser, Rig, read_form, rig, s256


def filled(fields: Mapping[str, str | None], **values: str) -> dict[str, str | None]:
    """Put values in their places: @NAME@."""
    result = dict(fields)
    for name, text in fields.items():
        for key, value in values.items():
            if text is not None:
                result[name] = text = text.replace(f"@{key}@", value)
    return result


def named(cases: Iterable[Any]) -> pytest.MarkDecorator:
    listed = list(cases)
    return pytest.mark.parametrize("case", listed, ids=[case.name for case in listed])


async def register(site: Rig, case: proxy.RegistrationCase) -> Response:
    good = {"client_name": "A client", "redirect_uris": [WEB_CALLBACK]}
    body = case.metadata if isinstance(case.metadata, bytes) else json.dumps({**good, **case.metadata}).encode()
    headers = (("Content-Type", case.content_type),) if case.content_type else ()
    return await exchange(site.port, Request("POST", "/register", headers, body))


async def test_registrations() -> None:
    async with rig() as site:
        wrong = [
            f"{case.name}: {text}"
            for case in proxy.REGISTRATIONS
            if (text := problem(case.expect, await register(site, case)))
        ]
        assert wrong == []


@pytest.mark.parametrize("uri", proxy.REFUSED_REDIRECT_URIS)
def test_a_redirect_uri_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"redirect URI|scheme"):
        check_redirect_uri(uri)


@pytest.mark.parametrize("uri", proxy.ACCEPTED_REDIRECT_URIS)
def test_a_redirect_uri_is_accepted(uri: str) -> None:
    check_redirect_uri(uri)
    assert matches([uri], uri)


async def test_the_same_is_refused_when_it_is_registered() -> None:
    async with rig() as site:
        for uri in proxy.REFUSED_REDIRECT_URIS:
            case = proxy.RegistrationCase(uri, {"redirect_uris": [uri]}, proxy.BAD_URI)
            response = await register(site, case)
            expect = proxy.BAD_METADATA if len(uri) > 4096 else proxy.BAD_URI
            assert problem(expect, response) is None, (uri, response)


@pytest.mark.parametrize(("registered", "requested"), proxy.NEAR_MISSES)
async def test_a_redirect_uri_that_is_nearly_the_same_is_another_one(registered: str, requested: str) -> None:
    assert not matches([registered], requested)


async def test_nobody_is_sent_to_a_redirect_uri_that_is_nearly_the_same() -> None:
    async with rig() as site:
        clients: dict[str, str] = {}
        for registered, requested in proxy.NEAR_MISSES:
            client_id = clients.get(registered) or await site.register(registered)
            clients[registered] = client_id
            _, response = await Browser().open(site.authorize_url(client_id, redirect_uri=requested))
            assert problem(proxy.BAD_PAGE, response) is None, (registered, requested, response)


@pytest.mark.parametrize(("registered", "requested"), proxy.MATCHES)
def test_the_port_of_a_loopback_address_does_not_matter(registered: str, requested: str) -> None:
    assert matches([registered], requested)


async def test_authorization_requests() -> None:
    async with rig(scopes=["notes"]) as site:
        client_id = await site.register(WEB_CALLBACK)
        wrong = []
        for case in proxy.AUTHORIZATIONS:
            changes = {"redirect_uri": WEB_CALLBACK, "client_id": client_id, **filled(case.changes, ISSUER=site.issuer)}
            good = site.parameters(client_id)
            sent = {name: value for name, value in {**good, **changes}.items() if value is not None}
            url = f"{site.issuer}/authorize?{urlencode(sent)}"
            response = await Browser().request("GET", url + case.more)
            if text := problem(case.expect, response):
                wrong.append(f"{case.name}: {text}")
        assert wrong == []
        assert site.idp.requests == [("/.well-known/openid-configuration", {})]


async def test_token_requests() -> None:
    async with rig() as site:
        client_id, other = await site.register(WEB_CALLBACK), await site.register("https://other.test/")
        wrong = []
        for case in proxy.TOKEN_REQUESTS:
            answer = await site.login(client_id, redirect_uri=WEB_CALLBACK)
            upstream = next(form["code"] for path, form in reversed(site.idp.requests) if path == "/token")
            values = {"CHALLENGE": s256(VERIFIER), "OTHER": other, "CODE": answer["code"], "UPSTREAM": upstream}
            good = {
                "grant_type": "authorization_code",
                "client_id": client_id,
                "code": answer["code"],
                "code_verifier": VERIFIER,
                "redirect_uri": WEB_CALLBACK,
                "resource": site.resource,
            }
            form = {
                name: value for name, value in {**good, **filled(case.changes, **values)}.items() if value is not None
            }
            own_type = any(name == "Content-Type" for name, _ in case.headers)
            headers = case.headers if own_type else (FORM, *case.headers)
            request = Request("POST", "/token", headers, (urlencode(form) + case.more).encode())
            if text := problem(case.expect, await exchange(site.port, request)):
                wrong.append(f"{case.name}: {text}")
        assert wrong == []


@named(proxy.DOCUMENTS)
async def test_documents_of_clients(case: proxy.DocumentCase) -> None:
    async with rig() as site:
        origin = site.idp.issuer
        client_id = origin + case.path
        good = {"client_id": client_id, "client_name": "An app", "redirect_uris": [WEB_CALLBACK]}
        if isinstance(case.document, bytes):
            body = case.document
        else:
            changed = {**good, **case.document}
            body = (
                json.dumps({name: value for name, value in changed.items() if value is not None})
                .replace("@ORIGIN@", origin)
                .encode()
            )
        path = case.path.partition("#")[0] or "/"
        site.idp.documents[path] = lambda: (case.status, body)
        site.idp.documents["/clients/good.json"] = lambda: (200, json.dumps(good).encode())
        response = await Browser().request("GET", site.authorize_url(client_id, redirect_uri=WEB_CALLBACK))
        assert problem(case.expect, response) is None, response


async def test_no_packet_goes_to_a_client_id_inside() -> None:
    async with rig() as site:
        for client_id in proxy.UNREACHABLE_CLIENT_IDS:
            response = await Browser().request("GET", site.authorize_url(client_id, redirect_uri=WEB_CALLBACK))
            assert problem(proxy.UNKNOWN_CLIENT, response) is None, (client_id, response)


HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{title}{style}{body}",
    "&#60;script&#62;",
    "Claude\u202egpj.exe",
    "Claude\u200b\u2060",
    "A\r\nSet-Cookie: a=b",
    "x" * 4000,
    "\U000e0041\U000e0042",
)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_the_name_of_a_client_is_only_text(name: str) -> None:
    async with rig() as site:
        client_id = await site.register(WEB_CALLBACK, client_name=name)
        _, page = await Browser().open(site.authorize_url(client_id, redirect_uri=WEB_CALLBACK))
        text = page.body.decode()
        assert page.status == 200
        assert len(text) < 6000
        for tag in ("<script", "<img", " onmouseover='", "\u202e", "\u200b", "\U000e0041", "\r\nSet-Cookie"):
            assert tag not in text
        assert not page.all("set-cookie")[0].startswith("a=")
        read_form(page)


CONSENT_FORMS: dict[str, tuple[dict[str, str | None], tuple[tuple[str, str], ...]]] = {
    "another site": ({}, (("Origin", "https://evil.test"),)),
    "an opaque origin": ({}, (("Origin", "null"),)),
    "another port of this host": ({}, (("Origin", "http://127.0.0.1:1"),)),
    "a page of another site": ({}, (("Sec-Fetch-Site", "cross-site"),)),
    "a page of the same site": ({}, (("Sec-Fetch-Site", "same-site"),)),
    "no request": ({"request": None}, ()),
    "an empty request": ({"request": ""}, ()),
    "no sealed text": ({"request": "abc"}, ()),
    "a sealed text that was changed": ({"request": "@CHANGED@"}, ()),
    "a sealed text with another spelling": ({"request": "@PADDED@"}, ()),
    "an access token": ({"request": "@TOKEN@"}, ()),
    "a megabyte": ({"request": "A" * 60_000}, ()),
    "no decision": ({"decision": None}, ()),
}


@pytest.mark.parametrize("name", CONSENT_FORMS)
async def test_a_form_that_is_not_ours_starts_no_login(name: str) -> None:
    changes, headers = CONSENT_FORMS[name]
    async with rig() as site:
        tokens = await site.tokens()
        before = site.idp.count("/authorize")
        browser = Browser()
        _, page = await browser.open(site.authorize_url(tokens["client_id"]))
        action, fields = read_form(page)
        sealed = fields["request"]
        values = {
            "CHANGED": f"{sealed[:-9]}{'A' if sealed[-9] != 'A' else 'B'}{sealed[-8:]}",
            "PADDED": f"{sealed}=",
            "TOKEN": tokens["access_token"],
        }
        form = {**fields, "decision": "allow", **filled(changes, **values)}
        response = await browser.request(
            "POST", action, {key: text for key, text in form.items() if text is not None}, headers
        )
        assert response.status in (400, 403), response
        assert not response.all("location")
        assert site.idp.count("/authorize") == before


@pytest.mark.parametrize("path", ["/authorize", "/auth/consent", "/auth/callback", "/token", "/register", "/revoke"])
async def test_other_methods_are_refused(path: str) -> None:
    async with rig() as site:
        for method in (
            "PUT",
            "DELETE",
            "PATCH",
            "TRACE",
            "POST" if "auth" in path and path != "/auth/consent" else "GET",
        ):
            response = await exchange(site.port, Request(method, path))
            assert response.status in (405, 501), (method, response)


@pytest.mark.parametrize("path", ["/authorize", "/auth/callback", "/auth/consent"])
async def test_pages_can_not_be_framed_or_read_by_other_sites(path: str) -> None:
    async with rig() as site:
        client_id = await site.register(WEB_CALLBACK)
        url = site.authorize_url(client_id, redirect_uri=WEB_CALLBACK) if path == "/authorize" else site.issuer + path
        method = "POST" if path == "/auth/consent" else "GET"
        response = await Browser().request(method, url, headers=(("Origin", "https://evil.test"),))
        (policy,) = response.all("content-security-policy")
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'none'" in policy
        assert "base-uri 'none'" in policy
        assert "script" not in policy
        assert "unsafe" not in policy
        assert response.all("x-frame-options") == ["DENY"]
        assert response.all("cache-control") == ["no-store"]
        assert not response.all("access-control-allow-origin")
        assert b"<script" not in response.body
        assert b"src=" not in response.body
        assert b"href=" not in response.body


async def test_the_error_page_shows_nothing_of_the_request() -> None:
    async with rig() as site:
        for text in ("<script>alert(1)</script>", "canary", "%0d%0aX: y"):
            for query in (f"client_id={quote(text)}", f"error={quote(text)}&state=a", f"state={quote(text)}"):
                for path in ("/authorize", "/auth/callback"):
                    response = await site.get(f"{path}?{query}")
                    assert response.status in (400, 401, 403), response
                    assert text.encode() not in response.body


def test_there_are_enough_cases() -> None:
    cases = (
        proxy.REGISTRATIONS,
        proxy.REFUSED_REDIRECT_URIS,
        proxy.NEAR_MISSES,
        proxy.AUTHORIZATIONS,
        proxy.TOKEN_REQUESTS,
        proxy.DOCUMENTS,
        proxy.UNREACHABLE_CLIENT_IDS,
        HOSTILE_NAMES,
        list(CONSENT_FORMS),
    )
    assert sum(map(len, cases)) >= 240
    for table in (proxy.REGISTRATIONS, proxy.AUTHORIZATIONS, proxy.TOKEN_REQUESTS, proxy.DOCUMENTS):
        names = [case.name for case in table]
        assert len(names) == len(set(names))
