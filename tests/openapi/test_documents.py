"""Where documents come from, where the API is that they describe, and responses that don't keep to them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, DefinitionError, Server, ToolCallError
from gemel.openapi import server_from
from tests.transports.scripted_http import Answer, Asked, ScriptedServer

PETS_YAML = """\
openapi: 3.1.0
info: {title: Pets, version: 1.10}
x-ok: &ok
  description: fine
paths:
  /pets/{id}:
    get:
      operationId: getPet
      parameters:
        - {name: id, in: path, required: true, schema: {type: string, enum: [yes, 2026-01-01]}}
      responses:
        200:
          <<: *ok
          content:
            application/json:
              schema: {type: object, required: [id]}
"""
PET: dict[str, Any] = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


def document(*servers: Any, **more: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "servers": list(servers), "paths": {"/pets": {"get": {"operationId": "pets", **more}}}}


# ---------------------------------------------------------------- sources


@pytest.mark.parametrize("kind", ["text", "bytes", "path", "path as text", "UTF-8 with a byte order mark"])
async def test_a_document_may_be_yaml(kind: str, tmp_path: Path) -> None:
    """By YAML 1.2, as the specification demands: `yes` and dates are texts, keys are texts."""
    file = tmp_path / "all pets.yaml"
    file.write_bytes((b"\xef\xbb\xbf" if "mark" in kind else b"") + PETS_YAML.encode())
    sources: dict[str, Any] = {"text": PETS_YAML, "bytes": PETS_YAML.encode(), "path": file}
    server = server_from(sources.get(kind, str(file)), base_url="https://h")
    assert server.name == "Pets"
    async with Client(server) as client:
        (tool,) = await client.list_tools()
    assert tool.input_schema["properties"] == {"id": {"type": "string", "enum": ["yes", "2026-01-01"]}}
    assert tool.output_schema == {"type": "object", "required": ["id"]}


def test_without_pyyaml_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(DefinitionError, match=r"YAML needs the extra openapi: pip install 'gemel\[openapi\]'"):
        server_from(PETS_YAML, base_url="https://h")
    assert server_from(json.dumps(document()), base_url="https://h").name == "API"


def test_aliases_that_grow_without_end_are_refused() -> None:
    lines = ["openapi: 3.1.0", "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 9)]
    with pytest.raises(DefinitionError, match="its aliases resolved"):
        server_from("\n".join(lines))
    with pytest.raises(DefinitionError, match="nested deeper"):
        server_from("openapi: &a [*a]")


@pytest.mark.parametrize("kind", ["json", "yaml", "moved"])
async def test_a_document_is_fetched_and_its_servers_are_relative_to_it(kind: str) -> None:
    text = PETS_YAML + "servers: [{url: ../v2}]" if kind == "yaml" else json.dumps(document({"url": "../v2"}))

    async def script(asked: Asked, answer: Answer) -> None:
        if asked.path == "/old":
            await answer.body(b"", status=302, headers={"Location": "/docs/all/api"})
        elif asked.path == "/docs/all/api":
            await answer.body(text.encode())
        else:
            await answer.json({"id": 1})

    async with ScriptedServer(script) as api:
        url = f"http://127.0.0.1:{api.port}{'/old' if kind == 'moved' else '/docs/all/api'}"
        server = await asyncio.to_thread(Server.from_openapi, url)
        async with Client(server) as client:
            tool = (await client.list_tools())[0].name
            await client.call_tool(tool, {"id": "yes"} if tool == "getPet" else {})
        assert api.asked[-1].path == ("/docs/v2/pets/yes" if tool == "getPet" else "/docs/v2/pets")


async def test_a_document_that_can_not_be_fetched_is_told() -> None:
    async def script(asked: Asked, answer: Answer) -> None:
        await answer.body(b"no", "text/plain", int(asked.path[1:]))

    async with ScriptedServer(script) as api:
        url = f"http://127.0.0.1:{api.port}"
        with pytest.raises(DefinitionError, match="HTTP 401: fetch it with your credentials"):
            await asyncio.to_thread(server_from, f"{url}/401")
        with pytest.raises(DefinitionError, match="HTTP 404"):
            await asyncio.to_thread(server_from, f"{url}/404")
    with pytest.raises(DefinitionError, match=f"{url}/404 can't be fetched"):
        await asyncio.to_thread(server_from, f"{url}/404")


# ---------------------------------------------------------------- servers


class Api:
    """Keeps the URLs of requests, and gives one answer."""

    def __init__(self, answer: bytes = b"{}", kind: str = "application/json", status: int = 200) -> None:
        self.urls: list[str] = []
        self.answer = status, {"Content-Type": kind}, answer

    async def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        self.urls.append(url)
        return self.answer


REGIONS = {"url": "/{region}/v1", "variables": {"region": {"default": "eu", "enum": ["eu", "us"]}}}


@pytest.mark.parametrize(
    ("stated", "given", "expected"),
    [
        ("/myapp", "https://10.0.0.1", "https://10.0.0.1/myapp/pets"),
        ("/myapp/", "https://10.0.0.1/", "https://10.0.0.1/myapp/pets"),
        ("myapp", "https://10.0.0.1", "https://10.0.0.1/myapp/pets"),
        ("/", "https://h/x", "https://h/x/pets"),
        ("/myapp", "https://h/x", "https://h/x/myapp/pets"),
        ("/myapp", "https://h/myapp/", "https://h/myapp/pets"),
        ("https://other/v2", "https://h/x", "https://h/x/pets"),
        ("//other/v2", "https://h/x", "https://h/x/pets"),
        ("https://other/v2", None, "https://other/v2/pets"),
        (REGIONS, "https://h", "https://h/eu/v1/pets"),
        ({**REGIONS, "url": "https://{region}.example.com"}, None, "https://eu.example.com/pets"),
        ({"url": "https://{region}.example.com"}, "https://h", "https://h/pets"),
    ],
)
async def test_the_path_of_a_relative_server_is_kept(stated: Any, given: str | None, expected: str) -> None:
    api = Api()
    described = document(stated if isinstance(stated, dict) else {"url": stated})
    async with Client(server_from(described, api, base_url=given)) as client:
        await client.call_tool("pets")
    assert api.urls == [expected]


async def test_a_server_of_an_operation_comes_before_those_of_the_document() -> None:
    api = Api()
    described = document({"url": "/v1"}, servers=[{"url": "/v2"}])
    async with Client(server_from(described, api, base_url="https://h")) as client:
        await client.call_tool("pets")
    assert api.urls == ["https://h/v2/pets"]


def test_a_variable_without_a_default_is_told() -> None:
    with pytest.raises(DefinitionError, match=r"'https://{region}\.example\.com' has no default: pass base_url"):
        server_from(document({"url": "https://{region}.example.com"}))


# ---------------------------------------------------------------- responses


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain", "ü€".encode(), "ü€"),
        ("text/plain", b"\xef\xbb\xbfhi", "hi"),
        ("text/plain; charset=iso-8859-1", b"\xfc", "ü"),
        ('text/csv; header=present; Charset="windows-1252"', b"\x80", "€"),
        ("text/html; charset=utf-16", "ü".encode("utf-16"), "ü"),
        ("text/plain; charset=nonsense", "ü".encode(), "ü"),
        ("text/plain; charset=ascii", b"a\xfc", "a�"),
        ("text/plain; charset=hex", b"6869", "6869"),
        ("application/xml; charset=shift_jis", "<a>日本</a>".encode("shift_jis"), "<a>日本</a>"),
        ("application/yaml", b"a: 1", "a: 1"),
        ("application/vnd.example; charset=latin-1", b"\xfc", "ü"),
    ],
)
async def test_text_is_read_in_its_declared_charset(kind: str, body: bytes, text: str) -> None:
    async with Client(server_from(document(), Api(body, kind), base_url="https://h")) as client:
        assert (await client.call_tool("pets")).text == text
    async with Client(server_from(document(), Api(body, kind, 400), base_url="https://h")) as client:
        with pytest.raises(ToolCallError) as failed:
            await client.call_tool("pets")
        assert str(failed.value) == f"The API responded with HTTP 400: {text}"


@pytest.mark.parametrize(
    ("kind", "charset"),
    [
        ("application/json", "utf-8"),
        ("application/json", "utf-8-sig"),
        ("application/json; charset=utf-8", "utf-8"),
        ("application/json; charset=iso-8859-1", "utf-8"),  # RFC 8259: it has no effect
        ("application/json; charset=iso-8859-1", "iso-8859-1"),
        ("application/problem+json;charset=windows-1252", "windows-1252"),
        ("application/json; charset=utf-16", "utf-16"),
        ("application/json", "utf-16-le"),
    ],
)
async def test_json_is_utf_8_or_what_it_is_declared_as(kind: str, charset: str) -> None:
    body = '{"name":"Müller"}'.encode(charset)
    async with Client(server_from(document(), Api(body, kind), base_url="https://h")) as client:
        result = await client.call_tool("pets")
    assert (result.structured_content, result.text) == ({"name": "Müller"}, '{"name":"Müller"}')


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize(
    ("kind", "answer", "wrong"),
    [
        ("application/json", b'{"id":"7"}', "does not match its description: id: "),
        ("application/json", b"[1]", "does not match its description: "),
        ("text/html", b"<p>", "responded with text/html, but its description requires JSON"),
        ("application/json", b"", "responded with HTTP 200 and no body, but its description requires one"),
    ],
)
async def test_a_response_against_its_description_is_an_error_or_passed_on(
    era: Any, kind: str, answer: bytes, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    described = document(responses={"200": {"content": {"application/json": {"schema": PET}}}})
    async with Client(server_from(described, Api(answer, kind), base_url="https://h"), era=era) as client:
        assert (await client.list_tools())[0].output_schema == PET
        with pytest.raises(ToolCallError, match=wrong):
            await client.call_tool("pets")
    server = server_from(described, Api(answer, kind), base_url="https://h", validate_output=False)
    async with Client(server, era=era) as client:
        assert (await client.list_tools())[0].output_schema is None
        assert (await client.call_tool("pets")).text == answer.decode()
    (record,) = [one for one in caplog.records if "pets" in one.getMessage()]
    assert (record.levelname, wrong in record.getMessage()) == ("WARNING", True)


async def test_a_response_that_keeps_to_its_description_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    described = document(responses={"200": {"content": {"application/json": {"schema": PET}}}})
    server = server_from(described, Api(b'{"id":7}'), base_url="https://h", validate_output=False)
    async with Client(server) as client:
        assert (await client.call_tool("pets")).structured_content == {"id": 7}
    assert not caplog.records
