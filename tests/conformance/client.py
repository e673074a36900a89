"""The client that the official conformance suite judges: one behaviour per scenario, in the public API of Gemel.

The suite gives the scenario's name in MCP_CONFORMANCE_SCENARIO, its data as JSON in MCP_CONFORMANCE_CONTEXT, and the
server's URL as the last argument. A scenario that is not named below lists the tools and calls the first one.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from gemel import CallError, Client, ElicitFormParams, SkillsClient
from gemel.auth import CallbackLogin, ClientCredentials, DPoP, EnterpriseAuth, OAuth, WorkloadIdentity
from gemel.transports.http.client.options import AuthScheme

Scenario = Callable[[str], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(*names: str) -> Callable[[Scenario], Scenario]:
    """Register the behaviour for the scenarios of these names."""

    def register(function: Scenario) -> Scenario:
        SCENARIOS.update(dict.fromkeys(names, function))
        return function

    return register


def context() -> dict[str, Any]:
    """What the suite hands to this scenario."""
    found: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return found


@scenario("initialize", "json-schema-ref-no-deref")
async def list_only(url: str) -> None:
    async with Client(url) as client:
        await client.list_tools()


@scenario("tools_call")
async def add_numbers(url: str) -> None:
    async with Client(url) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert "add_numbers" in names, names
        await client.call_tool("add_numbers", {"a": 5, "b": 3})


@scenario("sse-retry")
async def reconnect(url: str) -> None:
    async with Client(url) as client:
        await client.list_tools()
        await client.call_tool("test_reconnection")


@scenario("request-metadata")
async def every_request(url: str) -> None:
    async with Client(url, on_roots=list, on_sample=lambda request: "", on_elicit=lambda form: {}) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name, raise_on_error=False)
        await client.ping()


@scenario("http-standard-headers")
async def standard_headers(url: str) -> None:
    """Each kind of request that carries a method and a name; what the server lacks is passed over."""
    async with Client(url) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name, raise_on_error=False)
        listed = await asked(client, "resources/list")
        for resource in listed.get("resources", []):
            await asked(client, "resources/read", {"uri": resource["uri"]})
        listed = await asked(client, "prompts/list")
        for prompt in listed.get("prompts", []):
            await asked(client, "prompts/get", {"name": prompt["name"], "arguments": {}})


async def asked(client: Client, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer to any request, empty when the server has none."""
    try:
        answer: dict[str, Any] = await client.request(method, params)
    except CallError as error:
        print(f"{method}: {error}", file=sys.stderr)
        return {}
    return answer


@scenario("http-custom-headers")
async def given_calls(url: str) -> None:
    async with Client(url) as client:
        await client.list_tools()
        for call in context()["toolCalls"]:
            await client.call_tool(call["name"], call.get("arguments") or {}, raise_on_error=False)


@scenario("http-invalid-tool-headers")
async def visible_tools(url: str) -> None:
    async with Client(url) as client:
        for tool in await client.list_tools():
            required = tool.input_schema.get("properties", {})
            await client.call_tool(tool.name, dict.fromkeys(required, "value"), raise_on_error=False)


@scenario("json-schema-2020-12-preservation")
async def echo_schema(url: str) -> None:
    async with Client(url) as client:
        schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
        await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


@scenario("elicitation-sep1034-client-defaults")
async def fill_in_defaults(url: str) -> None:
    """The form is accepted as it comes: what is left out, its defaults say."""
    async with Client(url, on_elicit=lambda form: {}) as client:
        await client.list_tools()
        await client.call_tool("test_client_elicitation_defaults")


@scenario("sep-2322-client-request-state")
async def answer_in_rounds(url: str) -> None:
    async with Client(url, on_elicit=confirm) as client:
        await client.list_tools()
        await asyncio.gather(client.call_tool("test_mrtr_echo_state"), client.call_tool("test_mrtr_unrelated"))
        await client.call_tool("test_mrtr_no_state")
        await client.call_tool("test_mrtr_no_result_type")


@scenario("sep-2640-client-no-prefetch")
async def list_skills(url: str) -> None:
    async with Client(url) as client:
        await SkillsClient(client).list()


@scenario("sep-2640-client-verify-digest", "sep-2640-client-verify-size", "sep-2640-client-verify-frontmatter")
async def load_skills(url: str) -> None:
    async with Client(url) as client:
        skills = SkillsClient(client)
        for skill in await skills.list():
            loaded = await skills.load(skill)
            for path in loaded.files:
                await loaded.read(path)


def confirm(form: ElicitFormParams) -> dict[str, Any]:
    """Yes to every question."""
    kinds = {"boolean": True, "string": "yes", "integer": 1, "number": 1.0}
    return {name: kinds[field["type"]] for name, field in form.requested_schema["properties"].items()}


#: Where the suite's authorization servers send the browser, and the client ID metadata document that they expect.
REDIRECT_URI = "http://localhost:3000/callback"
METADATA_URL = "https://conformance-test.local/client-metadata.json"


def open_page(url: str) -> str:
    """What a browser does with the page of a login: the suite's servers agree at once."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = HTTPConnection(parts.hostname, parts.port, timeout=10)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        return connection.getresponse().headers["location"]
    finally:
        connection.close()


async def agree(url: str) -> str:
    """The person at the browser."""
    return await asyncio.to_thread(open_page, url)


def login(**options: Any) -> OAuth:
    """OAuth without a browser."""
    authorizer = CallbackLogin(agree, redirect_uri=REDIRECT_URI)
    return OAuth(authorizer=authorizer, client_metadata_url=METADATA_URL, **options)


@scenario("auth/pre-registration")
async def registered_before(url: str) -> None:
    given = context()
    await first_tool(
        url, login(client_id=given["client_id"], client_secret=given["client_secret"], issuer=given["issuer"])
    )


@scenario("auth/client-credentials-jwt", "auth/client-credentials-basic")
async def client_credentials(url: str) -> None:
    data = context()
    key = data.get("private_key_pem")
    auth = ClientCredentials(
        data["client_id"], data.get("client_secret"), private_key=key, algorithm=data.get("signing_algorithm")
    )
    await first_tool(url, auth)


@scenario("auth/wif-jwt-bearer")
async def workload_identity(url: str) -> None:
    data = context()
    await first_tool(url, WorkloadIdentity(lambda audience: data["valid_jwt"], client_id=data["client_id"]))


@scenario("auth/enterprise-managed-authorization")
async def enterprise_managed(url: str) -> None:
    data = context()
    auth = EnterpriseAuth(
        data["idp_id_token"],
        idp_token_endpoint=data["idp_token_endpoint"],
        idp_client_id=data["idp_client_id"],
        client_id=data["client_id"],
        client_secret=data["client_secret"],
    )
    await first_tool(url, auth)


@scenario("auth/dpop", "auth/dpop-nonce")
async def bound_tokens(url: str) -> None:
    await first_tool(url, login(proof=DPoP()))


async def first_tool(url: str, auth: AuthScheme | None = None) -> None:
    """The authorization scenarios and all others: list, call the first."""
    async with Client(url, auth=auth or login()) as client:
        tools = await client.list_tools()
        if tools:
            await client.call_tool(tools[0].name, raise_on_error=False)


async def main() -> None:
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    await SCENARIOS.get(name, first_tool)(sys.argv[-1])


if __name__ == "__main__":
    asyncio.run(main())
