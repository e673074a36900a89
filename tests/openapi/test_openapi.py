"""HTTP APIs as tools: arguments become requests of the operation's own form, answers become content, and nothing leads out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import Client, DefinitionError, ImageContent, ResultLimit, ToolCallError, ToolError
from gemel.openapi import ApiResponse, Operation, server_from
from gemel.openapi.document import Document
from tests.transports.scripted_http import Answer as Written
from tests.transports.scripted_http import Asked, ScriptedServer

PET = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string", "nullable": True}},
    "required": ["id"],
    "example": {"id": 1},
}
LIMIT = {"type": "integer", "minimum": 0, "exclusiveMinimum": True}
TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def json_of(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def taking(name: str, place: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": {"type": "string"}, **more}


PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1.2"},
    "servers": [{"url": "https://{region}.example.com/v1", "variables": {"region": {"default": "eu"}}}],
    "components": {
        "schemas": {"Pet": PET, "Tree": TREE},
        "parameters": {"limit": {"name": "limit", "in": "query", "schema": LIMIT}},
    },
    "paths": {
        "/pets": {
            "parameters": [{"$ref": "#/components/parameters/limit"}],
            "get": {
                "operationId": "list pets",
                "summary": "All pets",
                "tags": ["pets"],
                "parameters": [
                    {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    taking("X-Trace", "header"),
                    taking("Authorization", "header"),
                ],
                "responses": {"200": json_of({"type": "array", "items": ref("Pet")})},
            },
            "post": {
                "operationId": "addPet",
                "requestBody": {"required": True, **json_of(ref("Pet"))},
                "responses": {"201": json_of(ref("Pet"))},
            },
        },
        "/pets/{id}": {
            "get": {
                "operationId": "getPet",
                "description": "One pet.",
                "parameters": [taking("id", "path", required=True, description="Which one."), taking("id", "query")],
                "responses": {"200": json_of(ref("Pet"))},
            },
            "delete": {
                "parameters": [taking("id", "path", required=True)],
                "responses": {"204": {"description": "gone"}},
            },
        },
        "/tree": {"get": {"operationId": "tree", "responses": {"200": json_of(ref("Tree"))}}},
        "/picture": {"get": {"operationId": "picture", "responses": {"200": {"content": {"image/png": {}}}}}},
        "/upload": {
            "post": {
                "operationId": "upload",
                "requestBody": {"required": True, "content": {"multipart/*": {}}},
            }
        },
        "/login": {
            "post": {
                "operationId": "login",
                "requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}},
                "deprecated": True,
            }
        },
    },
}


class Api:
    """An HTTP client that keeps what it was asked and answers as the test wants."""

    def __init__(self, answer: Any = None, status: int = 200, kind: str = "application/json") -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes | None]] = []
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.answer = ApiResponse(status, {"Content-Type": kind}, body)

    async def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ApiResponse:
        self.asked.append((method, url, dict(headers), body))
        return self.answer

    @property
    def url(self) -> str:
        return self.asked[-1][1]


def served(api: Api, **options: Any) -> Client:
    return Client(server_from(PETS, http_client=api, **options))


# ---------------------------------------------------------------- what is offered


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_each_operation_is_a_tool(era: Any, caplog: Any) -> None:
    async with Client(server_from(PETS, http_client=Api()), era=era) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("Pets", "1.2")
    assert list(tools) == ["list_pets", "addPet", "getPet", "delete_pets_id", "tree", "picture", "login"]
    assert "POST /upload is skipped: its body is multipart/*" in caplog.text
    listed, got = tools["list_pets"], tools["getPet"]
    assert (listed.title, listed.description) == ("All pets", "All pets")
    assert (got.title, got.description) == (None, "One pet.")
    assert listed.input_schema == {
        "type": "object",
        "properties": {
            "tag": {"type": "array", "items": {"type": "string"}},
            "X-Trace": {"type": "string"},
            "limit": {"type": "integer", "exclusiveMinimum": 0},
        },
        "additionalProperties": False,
    }
    assert got.input_schema["properties"] == {
        "id": {"type": "string", "description": "Which one."},
        "id_query": {"type": "string"},
    }
    assert got.input_schema["required"] == ["id"]


async def test_schemas_are_those_of_json_schema_without_references() -> None:
    async with served(Api()) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    pet = {
        "title": "Pet",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}},
        "required": ["id"],
    }
    assert tools["addPet"].input_schema["properties"]["body"] == pet
    assert "$defs" not in tools["addPet"].input_schema
    assert tools["getPet"].output_schema == pet
    tree = tools["tree"].output_schema
    assert isinstance(tree, dict)
    assert tree["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert tools["delete_pets_id"].output_schema is None


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_options_for_results_and_arguments_work_here_too(era: Any) -> None:
    api = Api({"id": 1, "name": "x" * 9000})
    options: Any = {"coerce": True, "omit_repeated_text": True, "middleware": [ResultLimit(8000, spill=True)]}
    async with Client(server_from(PETS, http_client=api, **options), era=era) as client:
        long = await client.call_tool("addPet", {"body": '{"id": "1"}'}, raise_on_error=False)
        assert json.loads(api.asked[-1][3] or b"") == {"id": 1}
        assert long.is_error
        assert [block.type for block in long.content] == ["text", "text", "resource_link"]
        api.answer = Api({"id": 1}).answer
        short = await client.call_tool("addPet", {"body": {"id": "1"}})
        assert (short.content, short.structured_content) == ([], {"id": 1})
        api.answer = Api([]).answer
        await client.call_tool("list_pets", {"limit": "3", "tag": '["a"]', "X-Trace": "7"})
        assert api.url.endswith("/pets?tag=a&limit=3")


async def test_what_is_safe_by_http_is_said_to_be_safe() -> None:
    async with served(Api()) as client:
        hints = {tool.name: tool.annotations for tool in await client.list_tools()}
    got, added, deleted = hints["getPet"], hints["addPet"], hints["delete_pets_id"]
    assert got is not None and added is not None and deleted is not None  # noqa: PT018
    assert (got.read_only_hint, added.read_only_hint, deleted.read_only_hint) == (True, False, False)
    assert (deleted.destructive_hint, deleted.idempotent_hint, added.idempotent_hint) == (True, True, False)


async def test_operations_can_be_picked() -> None:
    def pick(one: Operation) -> bool:
        return one.method == "GET" and "pets" in one.tags and not one.deprecated

    async with served(Api(), operations=pick) as client:
        assert [tool.name for tool in await client.list_tools()] == ["list_pets"]


# ---------------------------------------------------------------- requests


async def test_arguments_go_where_the_document_says() -> None:
    api = Api([])
    async with served(api) as client:
        await client.call_tool("list_pets", {"limit": 3, "tag": ["a b", "ü&"], "X-Trace": "t"})
    method, url, headers, body = api.asked[0]
    assert (method, body) == ("GET", None)
    assert url == "https://eu.example.com/v1/pets?tag=a%20b&tag=%C3%BC%26&limit=3"
    assert headers["X-Trace"] == "t"
    assert "Authorization" not in headers


async def test_a_body_is_sent_as_its_type() -> None:
    api = Api({"id": 1})
    async with served(api) as client:
        await client.call_tool("addPet", {"body": {"id": 1, "name": "Ü"}})
        assert json.loads(api.asked[-1][3] or b"") == {"id": 1, "name": "Ü"}
        assert api.asked[-1][2]["Content-Type"] == "application/json"
        await client.call_tool("login", {"body": {"user": "a b", "pets": [1, True]}})
        assert api.asked[-1][3] == b"user=a+b&pets=1&pets=true"
        assert api.asked[-1][2]["Content-Type"] == "application/x-www-form-urlencoded"


async def test_arguments_that_do_not_fit_never_become_a_request() -> None:
    api = Api({"id": 1})
    async with served(api) as client:
        wrong: list[dict[str, Any]] = [{}, {"body": {}}, {"body": {"id": "1"}}, {"body": {"id": 1}, "more": 1}]
        for arguments in wrong:
            with pytest.raises(ToolCallError):
                await client.call_tool("addPet", arguments)
    assert not api.asked


async def test_headers_of_the_author_go_with_every_request_and_win() -> None:
    api = Api({"id": 1})
    async with served(api, headers={"Authorization": "Bearer b", "x-trace": "mine"}) as client:
        await client.call_tool("list_pets", {"X-Trace": "theirs"}, raise_on_error=False)
    sent = {name.lower(): value for name, value in api.asked[0][2].items()}
    assert (sent["authorization"], sent["x-trace"]) == ("Bearer b", "mine")


# ---------------------------------------------------------------- nothing leads out

ESCAPES = [
    "..",
    ".",
    "",
    "../admin",
    "a/../../admin",
    "..%2fadmin",
    "%2e%2e",
    "%252e%252e%252fadmin",
    "..\\admin",
    "a/..;/b",
    "\0",
    "a\nb",
    "/etc/passwd",
    "．．/admin",
]


@pytest.mark.parametrize("value", ESCAPES)
async def test_a_value_that_would_lead_out_of_the_path_is_never_sent(value: str) -> None:
    api = Api({"id": 1})
    async with served(api) as client:
        with pytest.raises(ToolCallError, match="segment of a path"):
            await client.call_tool("getPet", {"id": value})
    assert not api.asked


@pytest.mark.parametrize(
    "value", ["a@evil.example", "//evil.example", "?x=1", "#", "a:b", "..a", "a..b", "%", "https://evil"]
)
async def test_a_value_with_marks_of_a_url_stays_one_part(value: str) -> None:
    api = Api({"id": 1})
    async with served(api) as client:
        await client.call_tool("getPet", {"id": value}, raise_on_error=False)
    for _, url, _, _ in api.asked:
        head, _, last = url.rpartition("/")
        assert head == "https://eu.example.com/v1/pets"
        assert not set(last) & set("?#@:/\\")


@given(st.text())
def test_whatever_the_value_the_path_is_of_the_operations_form(value: str) -> None:
    said = [{"name": "p", "in": "path", "required": True, "schema": {"type": "string"}}]
    operation = Operation(Document({"openapi": "3.1.0"}), "/x/{p}/y", "get", {"parameters": said}, {})
    try:
        url = operation.request("https://h/base", {"p": value}).url
    except (ToolError, UnicodeEncodeError):
        return
    parts = url.removeprefix("https://h/base/").split("/")
    assert (len(parts), parts[0], parts[2]) == (3, "x", "y")
    assert parts[1] not in ("", ".", "..")
    assert parts[1].isascii()
    assert parts[1].isprintable()


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\0", "ü"])
async def test_a_header_holds_no_line_end(value: str) -> None:
    api = Api([])
    async with served(api) as client:
        with pytest.raises(ToolCallError, match="header"):
            await client.call_tool("list_pets", {"X-Trace": value})
    assert not api.asked


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_json_is_structured_content(era: Any) -> None:
    async with Client(server_from(PETS, http_client=Api({"id": 1, "name": None})), era=era) as client:
        await client.list_tools()
        result = await client.call_tool("getPet", {"id": "1"})
        assert result.structured_content == {"id": 1, "name": None}
        assert json.loads(result.text) == {"id": 1, "name": None}


async def test_an_answer_that_breaks_the_promise_is_a_failure_that_shows_it() -> None:
    """TOOL-15: a client would refuse it without a word of what came."""
    async with served(Api({"id": "one"})) as client:
        with pytest.raises(ToolCallError, match=r'id: .*\n\{"id": "one"\}'):
            await client.call_tool("getPet", {"id": "1"})
    async with served(Api(b"", status=200)) as client:
        with pytest.raises(ToolCallError, match="no body"):
            await client.call_tool("getPet", {"id": "1"})
    async with served(Api(b"{", status=200)) as client:
        with pytest.raises(ToolCallError, match="not valid JSON"):
            await client.call_tool("getPet", {"id": "1"})


async def test_nothing_is_structured_as_null_where_the_document_allows_it() -> None:
    """TOOL-15: a client that checks wants structure wherever it was promised."""
    answers = {"200": {"description": "", **json_of({"type": ["object", "null"]})}}
    document = {**PETS, "paths": {"/maybe": {"get": {"operationId": "maybe", "responses": answers}}}}
    async with Client(server_from(document, http_client=Api(b""))) as client:
        await client.list_tools()
        assert (await client.call_tool("maybe")).structured_content is None


async def test_other_answers_are_content_of_their_type() -> None:
    async with served(Api(b"\x89PNG", kind="image/png")) as client:
        (block,) = (await client.call_tool("picture")).content
        assert isinstance(block, ImageContent)
        assert block.mime_type == "image/png"
    async with served(Api(b"plain", kind="text/plain; charset=utf-8")) as client:
        assert (await client.call_tool("picture")).text == "plain"
    async with served(Api(b"\x00", kind="application/zip")) as client:
        (block,) = (await client.call_tool("picture")).content
        assert block.resource.mime_type == "application/zip"  # type: ignore[union-attr]  # it is an embedded resource
    async with served(Api(b"", status=204)) as client:
        assert (await client.call_tool("delete_pets_id", {"id": "1"})).content == []


@pytest.mark.parametrize("status", [302, 400, 401, 404, 500, 503])
async def test_an_error_status_is_the_tools_failure(status: int) -> None:
    """TOOL-19."""
    async with served(Api({"detail": "no such pet"}, status=status)) as client:
        with pytest.raises(ToolCallError, match=f'HTTP {status}: {{"detail": "no such pet"}}'):
            await client.call_tool("getPet", {"id": "1"})


async def test_an_api_that_is_away_is_a_failure_without_addresses() -> None:
    async def fetch(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        raise OSError(f"secret {url}")

    async with Client(server_from(PETS, http_client=fetch)) as client:
        with pytest.raises(ToolCallError) as failed:
            await client.call_tool("getPet", {"id": "1"})
        assert str(failed.value) == "The API can't be reached"


# ---------------------------------------------------------------- our own wire, and others'


async def test_by_default_requests_go_over_our_own_wire() -> None:
    async def script(asked: Asked, answer: Written) -> None:
        if asked.path == "/v1/big":
            await answer.body(b"x" * 2000, "text/plain")
        elif asked.path == "/v1/hang":
            await answer.gone()
        else:
            await answer.json({"path": asked.path, "method": asked.method, "body": asked.body.decode()})

    text: dict[str, Any] = {"content": {"text/plain": {}}}
    document = {
        "openapi": "3.1.0",
        "paths": {
            "/echo": {"get": {"operationId": "get"}, "post": {"operationId": "post", "requestBody": text}},
            "/big": {"get": {"operationId": "big"}},
            "/hang": {"get": {"operationId": "hang"}},
        },
    }
    async with ScriptedServer(script) as server:
        base = f"http://127.0.0.1:{server.port}/v1/"
        async with Client(server_from(document, base_url=base, timeout=0.5, reply_bytes=1000)) as client:
            assert json.loads((await client.call_tool("get")).text)["path"] == "/v1/echo"
            posted = json.loads((await client.call_tool("post", {"body": "hello"})).text)
            assert (posted["method"], posted["body"]) == ("POST", "hello")
            with pytest.raises(ToolCallError, match="more than 1000 bytes"):
                await client.call_tool("big")
            with pytest.raises(ToolCallError, match=r"within 0\.5 seconds"):
                await client.call_tool("hang")
        assert server.connections <= 3


async def test_a_client_like_those_of_httpx_can_be_given() -> None:
    class Response:
        status_code = 200
        headers = {"content-type": "application/json"}  # noqa: RUF012 - as theirs
        content = b'{"id": 7}'

    class Theirs:
        async def request(self, method: str, url: str, *, content: bytes | None, headers: dict[str, str]) -> Response:
            assert (method, url, content) == ("GET", "https://eu.example.com/v1/pets/7", None)
            return Response()

    async with Client(server_from(PETS, http_client=Theirs())) as client:
        assert (await client.call_tool("getPet", {"id": "7"})).structured_content == {"id": 7}


# ---------------------------------------------------------------- documents


def test_a_document_comes_as_a_dict_as_text_or_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "pets.json").write_text(json.dumps(PETS))
    for source in (PETS, json.dumps(PETS), json.dumps(PETS).encode(), tmp_path / "pets.json"):
        assert server_from(source, http_client=Api()).name == "Pets"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"swagger": "2.0"}, "convert it"),
        ("swagger: '2.0'", "convert it"),
        ([], "JSON or YAML text, a path or a URL, not list"),
        ("[]", "not an object"),
        ("{,}", "not JSON"),
        ("openapi: [", "not YAML"),
        ("openapi: !!python/name:os.system 3.1.0", "a tag that JSON does not have"),
        (b"\xff\xff\xff", "not text"),
        ("nowhere.yaml", "'nowhere.yaml' can't be read"),
        ({"openapi": "3.1.0", "paths": {}}, "no operation"),
        ({"openapi": "3.1.0", "paths": {"/x": {"get": {}}}}, "base_url"),
        ({"openapi": "3.1.0", "servers": [{"url": "/v1"}], "paths": {"/x": {"get": {}}}}, "base_url"),
        (Path("/nowhere/at/all.json"), "can't be read"),
    ],
)
def test_what_can_not_be_used_is_told_at_once(source: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        server_from(source)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"parameters": [{"$ref": "https://evil.example/x"}]}, "points out of the document"),
        ({"parameters": [{"$ref": "#/nowhere"}]}, "has no target"),
        ({"parameters": [{"name": "p", "in": "query", "schema": {"$ref": "other.json"}}]}, "points out of"),
        ({"parameters": [{"name": "c", "in": "cookie", "style": "simple"}]}, "simple"),
        ({"parameters": [{"name": "p", "in": "query", "style": "matrix", "schema": {}}]}, "matrix"),
        ({"parameters": [{"name": "p", "in": "body", "schema": {}}]}, "the place 'body'"),
    ],
)
def test_an_operation_that_can_not_be_offered_is_left_out(said: Any, words: str, caplog: Any) -> None:
    document = {"openapi": "3.1.0", "paths": {"/ok": {"get": {"operationId": "ok"}}, "/x": {"get": said}}}
    server = server_from(document, base_url="https://h")
    assert len(server._tools) == 1
    assert words in caplog.text


def test_a_path_without_its_parameter_is_left_out_and_names_are_made_unique(caplog: Any) -> None:
    document = {
        "openapi": "3.1.0",
        "paths": {"/a": {"get": {"operationId": "x"}}, "/b": {"get": {"operationId": "x"}}, "/c/{d}": {"get": {}}},
    }
    server = server_from(document, base_url="https://h")
    assert list(server._tools.all) == ["x", "x_2"]
    assert "no parameter for d" in caplog.text


WORDS = ["type", "$ref", "items", "properties", "nullable", "enum", "allOf", "minimum", "exclusiveMinimum"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(WORDS), inner),
)


@given(VALUES, st.booleans())
def test_any_schema_becomes_a_schema_or_an_error(schema: Any, request: bool) -> None:
    try:
        found = Document({"openapi": "3.0.0", "components": {"schemas": {}}}).schema(schema, {}, request=request)
    except DefinitionError:
        return
    assert isinstance(found, dict | bool)
