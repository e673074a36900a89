"""The official Python SDK's client logs in to a server. Runs in the peers environment.

    client_auth_python.py URL ERA CALLBACK [CLIENT_METADATA_URL]
    client_auth_python.py URL ERA --credentials CLIENT_ID CLIENT_SECRET

Each line of standard input asks for something, in JSON, each answer is one line: `{"call": TOOL, "arguments": {…}}` is
answered with `{"result": …}` or `{"error": …}`. When a person is needed it says `{"authorize": URL}`, and reads
`{"callback": URL}`: the URL that the browser was sent to.
"""

import asyncio
import json
import sys
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


async def read() -> dict[str, Any] | None:
    line = await asyncio.to_thread(sys.stdin.readline)
    return json.loads(line) if line else None


class Memory:
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def on_redirect(url: str) -> None:
    say({"authorize": url})


async def on_callback() -> AuthorizationCodeResult:
    answer = await read()
    assert answer is not None
    query = dict(parse_qsl(urlsplit(answer["callback"]).query))
    if "error" in query:
        raise RuntimeError(f"refused: {query['error']}")
    return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))


def credentials(url: str, arguments: list[str]) -> httpx2.Auth:
    if arguments[0] == "--credentials":
        return ClientCredentialsOAuthProvider(url, Memory(), *arguments[1:3], scope="notes")
    metadata = OAuthClientMetadata(
        client_name="official",
        redirect_uris=[AnyUrl(arguments[0])],
        grant_types=["authorization_code", "refresh_token"],
        token_endpoint_auth_method="none",
        application_type="native",
    )
    return OAuthClientProvider(
        url, metadata, Memory(), on_redirect, on_callback, client_metadata_url=arguments[1] if arguments[1:] else None
    )


async def call(url: str, era: str, auth: httpx2.Auth, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    async with (
        httpx2.AsyncClient(auth=auth, timeout=30, follow_redirects=True) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy" if era == "2025" else "auto") as client,
    ):
        result = await client.call_tool(tool, arguments)
        texts = [block.text for block in result.content if block.type == "text"]
        return {"result": {"texts": texts, "is_error": result.is_error, "revision": client.protocol_version}}


def describe(exc: BaseException) -> str:
    if isinstance(exc, BaseExceptionGroup):
        return "; ".join(map(describe, exc.exceptions))
    return f"{type(exc).__name__}: {exc}"


async def main() -> None:
    url, era = sys.argv[1:3]
    auth = credentials(url, sys.argv[3:])
    while (asked := await read()) is not None:
        try:
            say(await call(url, era, auth, asked["call"], asked.get("arguments", {})))
        except Exception as exc:
            say({"error": describe(exc)})


asyncio.run(main())
