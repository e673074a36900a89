"""What a client answers when a server asks: forms, pages, models, roots; the same in both eras."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    Client,
    ClientContext,
    ClientExtension,
    ClientMethod,
    Context,
    CreateMessageParams,
    CreateMessageResult,
    DefinitionError,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    GemelError,
    InvalidResponse,
    LogParams,
    MethodNotFound,
    Root,
    SamplingRejected,
    Server,
    TextContent,
)
from gemel.client.callbacks import Callbacks
from gemel.schema.lifecycle import ClientCapabilities, Elicitation
from gemel.server.elicitation.elicit import InputRefused
from tests.client.puppet import META, SILENCE, Puppet, done, legacy, modern, shaken

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}},
    "required": ["name"],
}
NOT_SENT = {"code": -32603, "message": "The client's answer to elicitation/create is not valid, so it was not sent"}
FORM = {"message": "Who?", "requestedSchema": SCHEMA}
PAGE = {"mode": "url", "message": "Go there", "url": "https://example.test/", "elicitationId": "e1"}
TALK = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 9}


async def asked(era: str, method: str, params: Any, **options: Any) -> dict[str, Any]:
    """What a client says to one question: its result, or its error."""
    if era == "2026":
        question = {"method": method, **({} if params is None else {"params": params})}

        def rounds(puppet: Puppet, message: dict[str, Any]) -> Any:
            if "inputResponses" in message["params"]:
                return done()
            return {"resultType": "input_required", "inputRequests": {"k": question}}

        puppet = modern(tools_call=rounds)
        async with Client(puppet, **options) as client:
            await client.call_tool("x")
        found: dict[str, Any] = puppet.asked("tools/call")[1]["inputResponses"]["k"]
        return found
    puppet = legacy(tools_call=SILENCE)

    def ask(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.say({"id": "q", "method": method, **({} if params is None else {"params": params})})
        puppet.by_method["ping"] = {}
        return SILENCE

    puppet.by_method["tools/call"] = ask
    async with Client(puppet, **options) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await puppet.until(lambda: any(message.get("id") == "q" for message in puppet.came))
        puppet.answer({"id": next(m["id"] for m in puppet.came if m.get("method") == "tools/call")}, done())
        await call
    answer = next(message for message in puppet.came if message.get("id") == "q")
    return dict(answer.get("result") or answer["error"])


@both_eras
async def test_a_form_is_filled_in_and_its_defaults_with_it(era: str) -> None:
    """ELIC-09, ELIC-10."""

    def fill(request: ElicitFormParams) -> dict[str, Any]:
        assert request.message == "Who?"
        assert request.requested_schema == SCHEMA
        return {"name": "Ann"}

    assert await asked(era, "elicitation/create", FORM, on_elicit=fill) == {
        "action": "accept",
        "content": {"name": "Ann", "age": 7},
    }


@both_eras
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (None, {"action": "decline"}),
        (ElicitResult(action="cancel"), {"action": "cancel"}),
        (ElicitResult(action="decline"), {"action": "decline"}),
        (ElicitResult(action="accept", content={"name": "B"}), {"action": "accept", "content": {"name": "B"}}),
    ],
)
async def test_a_form_can_be_declined_or_closed(era: str, said: Any, answer: Any) -> None:
    """ELIC-10, MRTR-18."""

    async def slowly(request: ElicitFormParams) -> Any:
        return said

    assert await asked(era, "elicitation/create", FORM, on_elicit=slowly) == answer


async def test_an_answer_that_does_not_fit_the_form_is_the_applications_mistake() -> None:
    """ELIC-24."""
    with pytest.raises(GemelError, match="does not fit the form"):
        await asked("2026", "elicitation/create", FORM, on_elicit=lambda request: {"name": 7})
    error = await asked("2025", "elicitation/create", FORM, on_elicit=lambda request: {"name": 7})
    assert error == NOT_SENT


@both_eras
@pytest.mark.parametrize(("agreed", "action"), [(True, "accept"), (False, "decline")])
async def test_a_page_is_opened_with_consent_only(era: str, agreed: bool, action: str) -> None:
    """ELIC-11, ELIC-12, ELIC-19."""
    pages: list[ElicitUrlParams] = []

    def open_page(request: ElicitUrlParams) -> bool:
        pages.append(request)
        return agreed

    page = {key: value for key, value in PAGE.items() if era == "2025" or key != "elicitationId"}
    assert await asked(era, "elicitation/create", page, on_elicit_url=open_page) == {"action": action}
    assert (pages[0].message, pages[0].url) == ("Go there", "https://example.test/")


@pytest.mark.parametrize(("params", "option"), [(PAGE, "on_elicit"), (FORM, "on_elicit_url")])
async def test_a_mode_that_was_not_declared_is_refused(params: Any, option: str) -> None:
    """ELIC-16."""
    error = await asked("2025", "elicitation/create", params, **{option: lambda request: True})
    assert error["code"] == -32602
    with pytest.raises(InvalidResponse, match="did not declare elicitation mode"):
        await asked("2026", "elicitation/create", params, **{option: lambda request: True})


@both_eras
async def test_a_model_is_asked(era: str) -> None:
    """SAMP-03."""

    def model(request: CreateMessageParams) -> str:
        assert request.max_tokens == 9
        return "Ho"

    answer = await asked(era, "sampling/createMessage", TALK, on_sample=model)
    assert answer == {"role": "assistant", "model": "unknown", "content": {"type": "text", "text": "Ho"}}


async def test_tools_for_the_model_need_to_be_declared() -> None:
    """SAMP-05."""
    params = {**TALK, "tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    error = await asked("2025", "sampling/createMessage", params, on_sample=lambda request: "Ho")
    assert error["code"] == -32602
    answer = await asked("2025", "sampling/createMessage", params, on_sample=lambda request: "Ho", sampling_tools=True)
    assert answer["content"]["text"] == "Ho"


async def test_a_user_may_refuse_the_model() -> None:
    """ERR-11, SAMP-12, MRTR-18."""

    def refuse(request: CreateMessageParams) -> str:
        raise SamplingRejected("not with my model")

    error = await asked("2025", "sampling/createMessage", TALK, on_sample=refuse)
    assert error == {"code": -1, "message": "not with my model"}
    with pytest.raises(SamplingRejected):
        await asked("2026", "sampling/createMessage", TALK, on_sample=refuse)


@both_eras
async def test_roots_are_told_as_uris(era: str, tmp_path: Path) -> None:
    """ROOT-02."""
    given = [tmp_path, "file:///b", Root(uri="file:///c", name="C")]
    roots = [{"uri": tmp_path.as_uri()}, {"uri": "file:///b"}, {"uri": "file:///c", "name": "C"}]
    assert await asked(era, "roots/list", None, on_roots=given) == {"roots": roots}

    async def later() -> list[Any]:
        return given[1:]

    assert await asked(era, "roots/list", {}, on_roots=later) == {"roots": roots[1:]}
    assert await asked(era, "roots/list", {}, on_roots=[]) == {"roots": []}


@pytest.mark.parametrize(
    "method", ["roots/list", "sampling/createMessage", "elicitation/create", "acme/ask", "tools/list"]
)
async def test_what_was_not_declared_is_not_found(method: str) -> None:
    """ROOT-04, ERR-03."""
    error = await asked("2025", method, {})
    assert (error["code"], error["data"]) == (-32601, method)
    with pytest.raises(InvalidResponse):
        await asked("2026", method, {})


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
async def test_a_question_that_the_revision_does_not_have_reaches_nobody(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """LIFE-10: the user would answer in vain."""
    asked: list[Any] = []

    def ask(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.say({"id": "q", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}})
        return SILENCE

    puppet = legacy(initialize=shaken(revision), tools_call=ask)
    async with Client(puppet, era="2025", on_elicit=asked.append) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await puppet.until(lambda: any(message.get("id") == "q" for message in puppet.came))
        call.cancel()
        await asyncio.wait([call])
    (answer,) = [message for message in puppet.came if message.get("id") == "q"]
    assert answer["error"]["code"] == -32601
    assert not asked
    assert not caplog.records


ARRAY_FORM = {"message": "x", "requestedSchema": {"type": "array"}}


@pytest.mark.parametrize("params", [{"message": 1}, {}, {"message": "x", "requestedSchema": []}, ARRAY_FORM])
async def test_a_question_that_cannot_be_read_is_refused(params: Any) -> None:
    """ERR-04."""
    error = await asked("2025", "elicitation/create", params, on_elicit=lambda request: {})
    assert error["code"] == -32602


async def test_ping_is_answered_at_any_time() -> None:
    """PING-01."""
    puppet = legacy()

    def early(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.say({"id": "early", "method": "ping"})
        return SILENCE

    puppet.by_method["tools/list"] = early
    async with Client(puppet) as client:
        listing = client.list_tools()

        task = asyncio.create_task(listing)
        await puppet.until(lambda: any(message.get("id") == "early" for message in puppet.came))
        task.cancel()
        await asyncio.wait([task])
    assert {"jsonrpc": "2.0", "id": "early", "result": {}} in puppet.came


def test_what_can_be_answered_is_what_is_declared() -> None:
    """ELIC-01, ROOT-01, SAMP-01, LIFE-11."""

    def capabilities(**options: Any) -> Any:
        import msgspec

        return msgspec.to_builtins(Client(modern(), **options).callbacks.capabilities)

    assert capabilities() == {}
    assert capabilities(on_elicit=print) == {"elicitation": {"form": {}}}
    assert capabilities(on_elicit_url=print) == {"elicitation": {"url": {}}}
    assert capabilities(on_elicit=print, on_elicit_url=print) == {"elicitation": {"form": {}, "url": {}}}
    assert capabilities(on_sample=print) == {"sampling": {}}
    assert capabilities(on_sample=print, sampling_tools=True) == {"sampling": {"tools": {}}}
    assert capabilities(on_roots=[]) == {"roots": {"listChanged": True}}


class Relayed(Callbacks):
    """Callbacks of a gateway: it answers in the place of those that the client was given."""

    def __init__(self, own: Callbacks) -> None:
        super().__init__(on_notification=own.on_notification)
        self.own = own
        self.asked: list[str] = []

    @property
    def capabilities(self) -> ClientCapabilities:
        return ClientCapabilities(elicitation=Elicitation(form={}))

    async def answer(self, method: str, params: bytes) -> Any:
        self.asked.append(method)
        return ElicitResult(action="accept", content={"value": "relayed"})


@both_eras
async def test_callbacks_can_be_replaced_before_connecting(era: Any) -> None:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer: str = await ctx.elicit("Who?", str)
        return answer

    client = Client(server, era=era)
    assert client.callbacks.capabilities.elicitation is None
    relayed = Relayed(client.callbacks)
    client.use_callbacks(relayed)
    async with client:
        assert (await client.call_tool("ask")).text == "relayed"
        with pytest.raises(DefinitionError, match="before the client connects"):
            client.use_callbacks(Callbacks())
    assert relayed.asked == ["elicitation/create"]


@both_eras
async def test_callbacks_for_changes_and_logs_may_be_async(era: Any) -> None:
    server, seen = Server("talking"), list[Any]()

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.info("hello")
        return "done"

    async def log(params: LogParams) -> None:
        await asyncio.sleep(0)
        seen.append(params.data)

    async with Client(server, era=era, on_log=log) as client:
        await client.call_tool("talk")
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert seen == ["hello"]


async def test_a_stateless_server_is_told_nothing_of_changing_roots() -> None:
    """REQM-09, ROOT-01, ROOT-03."""
    puppet = modern(tools_list={"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"})
    async with Client(puppet, on_roots=[]) as client:
        await client.list_tools()
        await client.roots_changed()
    assert puppet.asked("tools/list")[0]["_meta"][f"{META}clientCapabilities"] == {"roots": {}}
    assert "notifications/roots/list_changed" not in puppet.methods()
    puppet = legacy()
    async with Client(puppet, on_roots=[]) as client:
        await client.roots_changed()
        await client.ping()
    assert "notifications/roots/list_changed" in puppet.methods()


def test_method_not_found_names_the_method() -> None:
    assert MethodNotFound("acme/x").error.data == "acme/x"


@pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage", "elicitation/create", "ping"])
async def test_a_request_of_a_stateless_server_reaches_no_callback_and_gets_no_response(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """STDIO-04: servers write no requests and clients no responses; input is requested by results."""
    calls: list[str] = []

    def call(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.say({"id": message["id"], "method": method, "params": {}})
        return done()

    def note(*arguments: Any) -> Any:
        calls.append(method)

    puppet = modern(tools_call=call)
    async with Client(puppet, on_elicit=note, on_sample=note, on_roots=note) as client:
        assert (await client.call_tool("x")).text == "done"
        await client.call_tool("x")
    assert puppet.methods() == ["server/discover", "tools/call", "tools/call"]
    assert len(puppet.came) == 3
    assert calls == []
    assert f"The server sent the request '{method}'" in caplog.text


class Consenting(Callbacks):
    """A gateway whose answers can't be sent."""

    @property
    def capabilities(self) -> ClientCapabilities:
        return ClientCapabilities(elicitation=Elicitation(form={}))

    async def answer(self, method: str, params: bytes) -> Any:
        return {"action": "agreed"}


TEXT = TextContent(text="x")
WRONG: list[tuple[str, str, Any, str]] = [
    ("elicitation/create", "on_elicit", 5, "returned int: return a dict of the fields of the form (name, age)"),
    ("elicitation/create", "on_elicit", True, "returned bool: return a dict of the fields of the form (name, age)"),
    ("elicitation/create", "on_elicit", ElicitResult(action="yes"), "ElicitResult.action: Invalid enum value 'yes'"),  # type: ignore[arg-type]  # a wrong value, on purpose
    ("elicitation/create", "on_elicit", ElicitResult(action="accept", content={"name": 5}), "does not fit the form"),
    ("elicitation/create", "on_elicit", ElicitResult(action="accept"), "does not fit the form"),
    ("elicitation/create", "on_elicit", {"name": "A", "more": float("nan")}, "NaN at `more` has no JSON form"),
    ("page", "on_elicit_url", "no", "expected ElicitResult, got str"),
    ("page", "on_elicit_url", None, "expected ElicitResult, got NoneType"),
    ("page", "on_elicit_url", {"action": "no"}, "Invalid enum value 'no'"),
    ("sampling/createMessage", "on_sample", None, "expected CreateMessageResult, got NoneType"),
    ("sampling/createMessage", "on_sample", TEXT, "expected CreateMessageResult, got TextContent"),
    (
        "sampling/createMessage",
        "on_sample",
        CreateMessageResult(role="assistant", content="hi", model="m"),  # type: ignore[arg-type]  # a wrong type, on purpose
        "CreateMessageResult.content: Expected",
    ),
    (
        "sampling/createMessage",
        "on_sample",
        CreateMessageResult(role="assistant", content=TextContent(text=5), model="m"),  # type: ignore[arg-type]  # a wrong type, on purpose
        "CreateMessageResult.content.text: Expected `str`, got `int`",
    ),
    ("roots/list", "on_roots", "/home", "return a list"),
    ("roots/list", "on_roots", None, "return a list"),
    ("roots/list", "on_roots", [5], "5 is not a root"),
    ("roots/list", "on_roots", ["https://example.test/"], "is not a root"),
    ("roots/list", "on_roots", [Root(uri="https://example.test/")], "is not a root"),
    ("roots/list", "on_roots", [Root(uri="file:///a", name=5)], "ListRootsResult.roots[0].name: Expected `str | null`"),  # type: ignore[arg-type]  # a wrong type, on purpose
]


@both_eras
@pytest.mark.parametrize(("method", "option", "wrong", "said"), WRONG)
async def test_a_callback_that_returns_something_else_is_one_error_and_nothing_is_sent(
    era: str, method: str, option: str, wrong: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    page = {key: value for key, value in PAGE.items() if era == "2025" or key != "elicitationId"}
    params = {"elicitation/create": FORM, "page": page, "sampling/createMessage": TALK, "roots/list": None}[method]
    method = "elicitation/create" if method == "page" else method
    callback = (lambda: wrong) if option == "on_roots" else (lambda request: wrong)
    if era == "2026":
        with pytest.raises(GemelError, match=re.escape(said)) as failed:
            await asked(era, method, params, **{option: callback})
        assert "\n" not in str(failed.value)
    else:
        error = await asked(era, method, params, **{option: callback})
        assert error == {"code": -32603, "message": f"The client's answer to {method} is not valid, so it was not sent"}
        (record,) = (record for record in caplog.records if record.levelname == "ERROR")
        assert said in record.getMessage()
        assert option in record.getMessage()
        assert record.exc_info is None


@both_eras
async def test_a_wrong_answer_is_explained_to_the_author_of_the_client_and_leaks_nothing(
    era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In the stateless era the call itself fails with the explanation, and nothing is sent."""
    server, refused = Server("asking"), list[str]()

    @server.tool
    async def ask(ctx: Context) -> int:
        try:
            return await ctx.elicit("Your age?", int)
        except InputRefused as exc:
            refused.append(str(exc))
            raise

    explanation = (
        "The answer of on_elicit to 'Your age?' does not fit the form: value: the value is not of type \"integer\""
    )
    async with Client(server, era=era, on_elicit=lambda form: {"value": "hunter2"}) as client:
        with pytest.raises(GemelError) as failed:
            await client.call_tool("ask")
    if era == "2026":
        assert explanation in str(failed.value)
        assert refused == []
    else:
        assert explanation in caplog.text
        assert refused == [str(failed.value)]
        assert str(failed.value) == (
            "The client did not answer elicitation/create: "
            "The client's answer to elicitation/create is not valid, so it was not sent (-32603)"
        )


async def test_middleware_and_gateways_can_send_nothing_else_either() -> None:
    async def replaced(ctx: ClientContext, call_next: Any) -> Any:
        return {"model": "m"} if ctx.inbound else await call_next(ctx)

    middlewares: list[Any] = [[replaced], []]
    for middleware in middlewares:
        question = {"method": "elicitation/create", "params": FORM}
        puppet = modern(tools_call={"resultType": "input_required", "inputRequests": {"k": question}})
        client = Client(puppet, on_elicit=lambda form: None, middleware=middleware)
        if not middleware:
            client.use_callbacks(Consenting())
        async with client:
            with pytest.raises(GemelError, match="The answer of on_elicit or on_elicit_url can't be sent"):
                await client.call_tool("x")
        assert len(puppet.asked("tools/call")) == 1


@pytest.mark.parametrize("wrong", [5, "text", [1]])
async def test_an_extension_answers_with_an_object(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def serve(ctx: ClientContext, params: Any) -> Any:
        return wrong

    class Asked(ClientExtension):
        id = "com.example/asked"

        def requests(self) -> list[ClientMethod]:
            return [ClientMethod(name="com.example/ask", serve=serve)]

    error = await asked("2025", "com.example/ask", {}, extensions=[Asked()])
    assert error["code"] == -32603
    assert "The answer of the handler of com.example/ask can't be sent" in caplog.text
