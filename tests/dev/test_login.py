"""Logins that `gemel dev` starts: the steps are events, the person opens the link."""

from __future__ import annotations

from typing import Any

from gemel.auth import MemoryTokenStore, OAuth
from gemel.cli.login import Nobody
from gemel.dev.target import DevTarget
from gemel.http1.client.pool import SocketWire
from tests.auth.double import AuthDouble
from tests.dev.program import inspecting, target_of


async def test_a_person_logs_in_with_the_link_of_the_page() -> None:
    async with AuthDouble() as double:
        store = MemoryTokenStore()

        def authorize(authorizer: Any) -> OAuth:
            return OAuth(authorizer=authorizer, store=store, keep_client=True)

        target = DevTarget(
            name="double",
            open=lambda show: (double.url, {"auth": authorize(Nobody())}),
            authorize=authorize,
        )
        async with inspecting(target, era="2026") as program:
            failed = await program.event("connection", era="2026", state="failed")
            assert "login" in failed["error"]
            await program.do("login", era="2026")
            link = await program.until(lambda event: event["kind"] == "login" and "url" in event)
            assert link["state"] == "open"
            assert link["url"].startswith(f"{double.issuer}/authorize?")
            person = SocketWire(proxy="")
            redirect = await person.open("GET", link["url"], (), None)
            page = await person.open("GET", redirect.headers["location"], (), None)
            assert page.status == 200
            await person.close()
            done = await program.event("login", state="done")
            assert double.issuer in done["step"]
            await program.event("connection", era="2026", state="ready")
            offers = await program.event("offers", era="2026", section="tools")
            assert [tool["name"] for tool in offers["items"]] == ["read", "write"]
            secrets = [*double.tokens, *double.refresh_tokens, *double.codes]
            assert secrets
            assert not [secret for secret in secrets if secret in str(program.seen)]
            await program.do("logout", era="2026")
            await program.event("login", state="done", step="Logged out")
            program.seen = program.seen[-1:]
            await program.event("connection", era="2026", state="failed")


async def test_a_login_needs_a_server_with_a_url() -> None:
    async with inspecting(target_of("http://127.0.0.1:9/mcp")) as program:
        reply = await program.post({"do": "login", "era": "2026"})
        assert reply.status == 409
        assert "URL" in reply.json["error"]
