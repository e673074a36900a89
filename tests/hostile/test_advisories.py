"""What was reported of other SDKs, and does not apply here: that `advisories.md` names tests, and those without a better place."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, DefinitionError, Server
from gemel.auth import JWTAuth, OAuthProxy
from gemel.auth.server.proxy.providers import OpenID
from gemel.errors import GemelError, ToolError
from gemel.openapi import ApiResponse
from tests.ports import free_port
from tests.serving import running
from tests.source import ROOT
from tests.transports.http_rig import modern_call, serving

TABLE = Path(__file__).with_name("advisories.md")
REFERENCE = re.compile(r"`([\w/.]+\.py)(?:::(\w+))?`")


def table_rows() -> list[list[str]]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [row for row in rows if row[0] != "report"]


# ---------------------------------------------------------------- the table


def test_each_report_names_tests_that_exist() -> None:
    functions: dict[str, set[str]] = {}
    for report, _, tests in table_rows():
        references = REFERENCE.findall(tests)
        assert references, report
        for path, name in references:
            if path not in functions:
                tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
                functions[path] = {
                    node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                }
            assert not name or name in functions[path], f"{report}: {path} has no {name}"


def test_a_report_stands_in_the_table_once() -> None:
    rows = table_rows()
    reports = [report for row in rows for report in row[0].split(", ")]
    assert all(len(row) == 3 for row in rows)
    assert len(reports) == len(set(reports)) > 100


# ---------------------------------------------------------------- transports


async def test_there_are_no_websockets() -> None:
    """CVE-2026-59950 (python-sdk): the WebSocket transport checked neither Host nor Origin."""
    server: Server[Any] = Server("plain")
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await server.http_app()({"type": "websocket", "path": "/mcp", "headers": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]
    wish = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "AAAA", "Sec-WebSocket-Version": "13"}
    async with serving(server) as site:
        for path in ("/mcp", "/", "/ws"):
            reply = await site.ask(wish, b"", "GET", path)
            assert reply.status >= 400
            assert "sec-websocket-accept" not in reply.headers


@pytest.mark.parametrize("origin", ["https://evil.test", "null", "http://localhost:5173", "http://127.0.0.1"])
async def test_no_answer_is_for_the_scripts_of_other_pages(origin: str) -> None:
    """CVE-2026-34237 (Java SDK): every page could read the answers of the endpoint. Who wants that adds CORS headers."""
    async with serving(Server("plain")) as site:
        headers, body = modern_call("none")
        preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        for method, more in (("OPTIONS", preflight), ("POST", headers), ("GET", {}), ("DELETE", {})):
            reply = await site.ask({**more, "Origin": origin}, body if method == "POST" else b"", method)
            assert [name for name in reply.headers if name.startswith("access-control-")] == []


async def test_a_server_listens_on_the_loopback_interface_by_default() -> None:
    """python-sdk #738: servers could be reached from the network unless they were told otherwise."""
    port = free_port()
    async with running(Server("plain"), "http", port=port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        for address in ("127.0.0.2", "::1"):  # who listens on all addresses, listens there, too
            with pytest.raises(OSError, match=r"Errno|Connect"):
                await asyncio.open_connection(address, port)


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "text/html", "*/*", "text/html, */*"])
@pytest.mark.parametrize("markup", ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>"])
async def test_no_answer_is_a_page(accept: str, markup: str) -> None:
    """Ruby SDK #175: an error answered with text of the request, which a browser took for a page."""
    async with serving(Server("plain")) as site:
        headers, body = modern_call(markup)
        pages: set[bytes] = set()
        wrong = [
            ({**headers, "Accept": accept}, body, "POST", "/mcp"),
            ({**headers, "Accept": accept}, {**body, "method": markup}, "POST", "/mcp"),
            ({**headers, "Accept": accept}, markup.encode(), "POST", "/mcp"),
            ({**headers, "Accept": accept, "Mcp-Method": markup}, body, "POST", "/mcp"),
            ({"Accept": accept, "Mcp-Session-Id": markup}, b"", "GET", "/mcp"),
            ({"Accept": accept}, b"", "GET", "/%3Cscript%3Ealert(1)%3C/script%3E"),
            ({"Accept": accept, "Host": "evil.test"}, b"", "GET", "/mcp"),
        ]
        for arguments in wrong:
            reply = await site.ask(*arguments)
            kind = reply.headers.get("content-type", "application/json").partition(";")[0]
            if kind == "text/html":  # the page for a browser at the endpoint
                assert "default-src 'none'" in reply.headers["content-security-policy"], arguments
                assert not any(part in reply.body for part in (b"<script", b"<img")), arguments
                pages.add(reply.body)
            else:
                assert kind in ("application/json", "text/plain"), (arguments, reply.headers)
            assert b"<script" not in reply.body or kind == "application/json"
        assert len(pages) <= 1, "the page is the same whatever was asked"


async def test_members_are_told_by_their_exact_names() -> None:
    """CVE-2026-27896 (Go SDK): `METHOD` counted as `method`, and so passed a gateway that reads names exactly."""
    server: Server[Any] = Server("plain")
    ran: list[str] = []
    server.tool("wipe")(lambda: ran.append("wipe"))
    async with serving(server) as site:
        headers, body = modern_call("wipe")
        params = body["params"]
        other = {name: value for name, value in params.items() if name != "name"}
        for changed in (
            {**{name: value for name, value in body.items() if name != "method"}, "METHOD": "tools/call"},
            {**{name: value for name, value in body.items() if name != "params"}, "Params": params},
            {**body, "params": {**other, "Name": "wipe"}},
        ):
            assert "error" in (await site.ask(headers, changed)).json()
        assert ran == []
        assert "result" in (await site.ask(headers, body)).json()


# ---------------------------------------------------------------- names and URLs


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", " ", "\0", "\u2028"])
def test_a_name_has_no_line_end_at_its_end(end: str) -> None:
    """python-sdk #3076: a pattern that ends with `$` also matches before a last line end."""
    server: Server[Any] = Server("plain")
    with pytest.raises(DefinitionError):
        server.tool(f"tool{end}")(lambda: "x")
    with pytest.raises(DefinitionError):
        server.resource(f"notes://{{name{end}}}")(lambda name: name)


@pytest.mark.parametrize(
    "host", ["localhost.evil.test", "127.0.0.1.evil.test", "evil.test", "localhost@evil.test", "localhostevil.test"]
)
def test_http_is_for_hosts_that_are_loopback_and_no_others(host: str) -> None:
    """python-sdk #2089: an issuer was taken for local because its host began so."""
    provider = OpenID(issuer="https://login.test", client_id="c", client_secret="s" * 32, title="IdP")
    with pytest.raises(GemelError):
        OAuthProxy(provider, url=f"http://{host}/mcp")
    with pytest.raises(GemelError):
        JWTAuth(issuer=f"http://{host}", audience="https://notes.test/mcp")


# ---------------------------------------------------------------- APIs behind a server

PETS = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://api.test/v1"}],
    "paths": {"/pets": {"get": {"operationId": "pets", "responses": {"200": {"description": "all"}}}}},
}


class Api:
    """An API that keeps what it was asked, and fails when it should."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failure: Exception | None = None

    async def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ApiResponse:
        self.asked.append(json.dumps([method, url, dict(headers), str(body)]))
        if self.failure is not None:
            raise self.failure
        return ApiResponse(200, {"Content-Type": "application/json"}, b"[]")


async def test_headers_of_a_caller_do_not_reach_the_api_behind_a_server() -> None:
    """FastMCP #3262: the token for the server was sent to the API that it wraps."""
    api = Api()
    server = Server.from_openapi(PETS, api)
    secrets = {"Authorization": "Bearer canary", "Cookie": "session=canary", "X-Api-Key": "canary", "Via": "canary"}
    async with serving(server) as site:
        headers, body = modern_call("pets")
        assert "result" in (await site.ask({**headers, **secrets}, body)).json()
    (asked,) = api.asked
    assert "canary" not in asked


async def test_secrets_for_an_api_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """FastMCP #3436: headers with credentials stood in the debug log."""
    caplog.set_level(logging.DEBUG)
    api = Api()
    headers = {"Authorization": "Bearer canary", "X-Api-Key": "canary"}
    async with Client(Server.from_openapi(PETS, api, headers=headers)) as client:
        await client.call_tool("pets")
        assert "canary" in api.asked[-1]
        api.failure = ConnectionError("refused")
        with pytest.raises(ToolError) as failed:
            await client.call_tool("pets")
    assert "canary" not in caplog.text + repr(failed.value)


# ---------------------------------------------------------------- packages


def test_packages_with_these_reports_are_not_used() -> None:
    """What the core and `gemel[auth]` need; reports of joserfc and cryptography are for their releases."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["auth"]]
    names = {re.match(r"[\w.-]+", each)[0].lower() for each in needed}  # type: ignore[index]  # each has a name
    reported = {"authlib", "diskcache", "protobuf", "pydantic-settings", "pyjwt", "python-multipart", "starlette"}
    assert not names & reported
