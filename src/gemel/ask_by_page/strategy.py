"""How a call asks by page: its questions become pages, and the handler runs again when it is repeated and they are answered.

A client that opens pages is asked to (URL elicitation). For others the call ends with a text that tells the model to give the
user a link and to repeat the call.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from gemel.ask_by_page.questions import Audience, OpenQuestion, OpenQuestions, new_question
from gemel.decisions import approving
from gemel.errors import ChannelClosed, ConnectionLost, InvalidParams, NotFinished, Overloaded
from gemel.jsonrpc import ABSENT
from gemel.protocol.records import Call
from gemel.protocol.revisions.adapt import shape
from gemel.schema.base import Result
from gemel.schema.content import TextContent
from gemel.schema.elicitation import ElicitationCompleteParams, ElicitFormParams, ElicitResult, ElicitUrlParams
from gemel.schema.input_required import InputRequest
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.methods import method_in
from gemel.server.elicitation.elicit import ClientInput, Unanswered, require
from gemel.server.elicitation.handshake import HandshakeElicitation, request_client
from gemel.server.elicitation.request_state import RequestStateCodec
from gemel.server.elicitation.rounds import RoundState
from gemel.server.elicitation.stateless import RetriedElicitation
from gemel.session import Session

#: The argument by which a caller whom nothing else identifies brings back what names its call.
ARGUMENT: Final = "_call"
_FORM: Final[Mapping[str, Any]] = {"elicitation": {"form": {}}}
_CREATE: Final = "elicitation/create"


class PageState(RoundState, array_like=True):
    """What is kept of a call between its rounds: also the tokens of its open questions, by the key of what was requested."""

    tokens: dict[str, str] = msgspec.field(default_factory=dict)


class Pages(Protocol):
    """What the strategies need to know of the pages of a server."""

    #: Seconds for which a call waits at a client that has opened a page.
    wait: float
    #: Tells the calls of this process from those of others.
    process: str

    @property
    def questions(self) -> OpenQuestions:
        """What waits for an answer."""
        ...

    async def address(self, token: str, audience: Audience) -> str:
        """Return the address of a page. Raises Overloaded if it can't be served now."""
        ...

    async def open(self, address: str) -> bool:
        """Open a page in the browser of this machine. Returns whether that worked."""
        ...

    @property
    def opens(self) -> bool:
        """Whether there is a browser to open it with."""
        ...


class PageElicitation(RetriedElicitation[PageState]):
    """Asks by page in the stateless era.

    Args:
        session: The session of the call.
        call: The call.
        codec: Encrypts the state that a client carries.
        pages: The pages of the server.
        audience: Who may answer.
        by_url: Whether the client is asked to open the pages.
    """

    def __init__(
        self, session: Session, call: Call, codec: RequestStateCodec, pages: Pages, audience: Audience, *, by_url: bool
    ) -> None:
        super().__init__(session, call, codec, PageState())
        self._pages = pages
        self._questions = pages.questions
        self._audience: Audience = audience
        self._by_url = by_url
        #: The forms that this run has requested, by key, and those of them that a policy asks.
        self._forms: dict[str, ElicitFormParams] = {}
        self._approvals: set[str] = set()
        #: The keys of pages that the user has agreed to open.
        self._consented: set[str] = set()
        #: What was posted for answers of this round, and what is wrong with answers that did not fit.
        self._posted: dict[str, dict[str, list[str]] | None] = {}
        self._rejected: dict[str, str] = {}
        #: Names the call of a caller whom nothing identifies.
        self._nonce = ""
        #: The questions that this round asked, by key, and the state that it has kept: of a call within a call by both.
        self._new: set[str] = set()
        self._kept: bytes | None = None

    # ---------------------------------------------------------------- what is requested

    def check_capabilities(self, client: ClientCapabilities, need: Mapping[str, Any]) -> None:
        """Raise MissingClientCapability for what can't be requested: forms can, unless a policy needs a safer way."""
        if need != _FORM:
            super().check_capabilities(client, need)
        elif approving.get() and not self._may_approve:
            require(client, need)

    @property
    def _may_approve(self) -> bool:
        """Whether a policy can rely on the answer: it comes from the user, and the model is not given the link."""
        return self._audience == "principal" or (self._audience == "local" and (self._by_url or self._pages.opens))

    def add(self, item: ClientInput[Any]) -> None:
        """Enter a request for input. Raises GemelError where the protocol allows none."""
        params = item.params
        super().add(item)
        assert item.key is not None
        if isinstance(params, ElicitFormParams):
            self._forms[item.key] = params
            if approving.get():
                self._approvals.add(item.key)

    async def answer(self, item: ClientInput[Any]) -> Any:
        """The answer that was given on the page; without one the handler is suspended."""
        await self.load()
        key = item.key
        assert key is not None
        if key in self._consented and key not in self._state.answers:
            await self._wait(item)
        result = await super().answer(item)
        if key in self._forms and result.action == "accept":
            try:
                item.read(result)
            except InvalidParams as exc:  # what the schema of a form can't say
                del self._state.answers[key]
                self._rejected[key] = str(exc)
                await self.suspend(item.task)
        return result

    async def _wait(self, item: ClientInput[Any]) -> None:
        """Wait for the answer to a page that the user has agreed to open; meanwhile the time limit of the call is paused."""
        key = item.key
        token = self._state.tokens.get(key or "")
        if key is None or token is None:
            return
        if item.timeout is not None:
            item.timeout.pause()
        try:
            await self._collect(key, token, await self._questions.wait(token, self._pages.wait))
        finally:
            if item.timeout is not None:
                item.timeout.resume()

    # ---------------------------------------------------------------- between the rounds

    async def _load(self) -> None:
        """Take the state of earlier rounds, from the client or from the backend, with the answers that came since."""
        if self._retry is not None:
            await super()._load()
        else:
            place = self._binding()
            state = None if self._is_unnamed else await self._questions.take(place)
            if state is not None:
                self._state = self._decoder.decode(state)
            else:
                self._nonce = ""  # one that we don't know was not made here
        for key, token in list(self._state.tokens.items()):
            await self._collect(key, token, await self._questions.get(token))

    async def _collect(self, key: str, token: str, question: OpenQuestion | None) -> None:
        """Take the answer of a question, if it is there. One that has expired is asked again."""
        if question is None:
            del self._state.tokens[key]
        elif question.answer or key in self._state.answers:  # or the client has declined to open the page
            del self._state.tokens[key]
            if await self._questions.drop(token, question.holder):  # of two retries with one state, one has the answer
                self._state.answers.setdefault(key, question.answer)
                self._posted[key] = question.posted

    def _keep_answer(self, key: str, answer: bytes) -> None:
        """The answer of a client: about a page it says that the user agrees to open it."""
        if key not in self._state.tokens:
            super()._keep_answer(key, answer)
            return
        try:
            result = msgspec.json.decode(answer, type=ElicitResult)
        except msgspec.MsgspecError as exc:
            raise InvalidParams(f"inputResponses.{key} is not a valid answer: {exc}") from None
        if result.action == "accept":
            self._consented.add(key)
        else:
            super()._keep_answer(key, answer)

    def _forget(self, scope: str) -> None:
        super()._forget(scope)
        for key in [key for key in self._forms if key.startswith(scope)]:
            del self._forms[key]
        for key in [key for key in self._state.tokens if key.startswith(scope)]:
            del self._state.tokens[key]

    @property
    def _state_ttl(self) -> float | None:
        return self._questions.call_ttl

    @property
    def _is_unnamed(self) -> bool:
        """Whether nothing tells this call from those of others."""
        return self._audience == "anybody" and self._call.origin.owner is None and not self._nonce

    def _owner(self, params: dict[str, Any]) -> Any:
        owner = self._call.origin.owner
        if self._audience == "local":
            return ["process", self._pages.process, owner]
        if owner is not None:
            return ["principal", owner]
        arguments = params.get("arguments")
        given = arguments.pop(ARGUMENT, None) if isinstance(arguments, dict) else None
        if not self._nonce and isinstance(given, str):
            self._nonce = given
        return ["call", self._nonce]

    async def _end_round(self) -> Result:
        others = {
            key: InputRequest(method=item.method, params=item.params)
            for key, item in self._unanswered()
            if key not in self._forms
        }
        if others and not self._by_url:
            return await self._require(others)
        asked = await self._ask_all()
        are_open = self._call.method == "tools/call" and asked.keys() <= self._consented - self._new
        # A user who was waited for in vain is not asked to open the page again.
        if not self._by_url or (are_open and not others):
            return await self._tell(asked)
        for key, token in asked.items():
            url = await self._pages.address(token, self._audience)
            params = ElicitUrlParams(message=self._forms[key].message, url=url, mode="url")
            others[key] = InputRequest(method=_CREATE, params=params)
        return await self._require(others)

    async def _ask_all(self) -> dict[str, str]:
        """Ask what is not answered. Returns the tokens of the pages by key."""
        asked = {}
        for key, item in self._unanswered():
            if key in self._forms:
                asked[key] = await self._ask(key, item)
        return asked

    async def _ask(self, key: str, item: ClientInput[Any]) -> str:
        token = self._state.tokens.get(key)
        if token is None:
            call, form = self._call, self._forms[key]
            params = msgspec.json.decode(call.params) if call.params is not ABSENT else {}
            arguments = params.get("arguments") or {}
            arguments.pop(ARGUMENT, None)
            info = self._session.connection.description
            client = call.era.client_info(call.meta, self._session.connection.handshake)
            error = self._rejected.get(key)
            question = new_question(
                self._audience,
                principal=call.origin.principal,
                holder=repr(call.origin.holder),
                server=(info.info.title or info.info.name) if info is not None else "",
                tool=str(params.get("name") or params.get("uri") or call.method),
                client=client.title or client.name if client is not None else "",
                message=form.message,
                arguments=msgspec.json.encode(arguments),
                schema=form.requested_schema,
                ttl=self._questions.ttl,
                posted=self._posted.get(key),
                errors={} if error is None else {"": error},
                approves=key in self._approvals,
            )
            token = self._state.tokens[key] = await self._questions.ask(question)
            self._new.add(key)
        return token

    # ---------------------------------------------------------------- telling the model

    async def _tell(self, asked: dict[str, str]) -> Unanswered:
        """End the call with a text for the model; the state waits in the backend."""
        if self._audience == "anybody" and self._call.origin.owner is None and not self._nonce:
            self._nonce = secrets.token_urlsafe(16)
        place, state = self._binding(), msgspec.msgpack.encode(self._state)

        async def keep() -> bool:
            return await self._questions.keep(place, state, former=self._kept)

        if await self._keep(keep):
            self._kept = state
        else:
            asked = await self._join(place, asked)
        return Unanswered(content=[TextContent(text=await self._text(asked))], is_error=True)

    async def _join(self, place: bytes, asked: dict[str, str]) -> dict[str, str]:
        """The same call of the same caller waits already: give its links in place of our own."""
        if self._has_run_steps:
            raise NotFinished(f"{self._call.method}: the same call waits for an answer already, and this one has begun")
        holder = repr(self._call.origin.holder)
        for token in asked.values():
            await self._questions.drop(token, holder)
        self._new.clear()
        state = await self._questions.peek(place)
        if state is None:
            raise Overloaded("The same call has just been answered: call again")
        return self._decoder.decode(state).tokens

    async def _text(self, asked: dict[str, str]) -> str:
        lines = ["Not done yet: the user has to answer a question first, on a web page."]
        for key, token in asked.items():
            form = self._forms.get(key)
            if form is not None:
                lines.append(f"The question: {form.message}")
            lines.append(await self._way_to(key, token))
        extra = f", and with {ARGUMENT!r}: {self._nonce!r} added to them" if self._nonce else ""
        lines.append(
            "Do not answer it yourself. When the user says that it is answered, call this tool again with exactly the same "
            f"arguments{extra}."
        )
        return "\n".join(lines)

    async def _way_to(self, key: str, token: str) -> str:
        """How the user finds a page. The model is not given the link if it could answer in the place of the user."""
        address = await self._pages.address(token, self._audience)
        if self._audience == "local":
            is_new, is_approval = key in self._new, key in self._approvals
            if self._by_url or (is_approval and not is_new):
                return "The page was opened in the user's browser and waits there."
            if is_new and await self._pages.open(address):
                return "The page was opened in the user's browser just now."
            if is_approval:
                return "It can't be shown: no browser could be opened on this machine."
        return f"Give the user this link: {address}"


class HandshakePageElicitation(PageElicitation):
    """Asks by page in the handshake era: a client that opens pages is sent a request while the handler waits."""

    def __init__(
        self, session: Session, call: Call, codec: RequestStateCodec, pages: Pages, audience: Audience, *, by_url: bool
    ) -> None:
        super().__init__(session, call, codec, pages, audience, by_url=by_url)
        self._direct = HandshakeElicitation(session, call)
        self._sent: set[str] = set()

    async def answer(self, item: ClientInput[Any]) -> Any:
        """The answer that was given on the page, or by the client to anything else; see `PageElicitation.answer`."""
        await self.load()
        key = item.key
        assert key is not None
        if key not in self._state.answers:
            if key not in self._forms:
                self._state.answers[key] = msgspec.json.encode(await self._direct.answer(item))
            elif self._by_url and key not in self._sent:
                self._sent.add(key)
                await self._send_url(key, item)
        return await super().answer(item)

    async def _send_url(self, key: str, item: ClientInput[Any]) -> None:
        """Let the client open the page and wait for the answer."""
        call, token = self._call, await self._ask(key, item)
        page = ElicitUrlParams(
            message=self._forms[key].message,
            url=await self._pages.address(token, self._audience),
            mode="url",
            elicitation_id=call.era.elicitation_id(),
        )
        if item.timeout is not None:
            item.timeout.pause()
        try:
            raw = await request_client(self._session, call, _CREATE, shape(page, call.revision))
            result = msgspec.json.decode(raw, type=ElicitResult)
        finally:
            if item.timeout is not None:
                item.timeout.resume()
        if result.action != "accept":
            self._state.answers[key] = msgspec.json.encode(ElicitResult(action=result.action))
        else:
            await self._wait(item)
            if key not in self._state.answers and call.method != "tools/call":
                self._state.answers[key] = msgspec.json.encode(ElicitResult(action="cancel"))
            complete = "notifications/elicitation/complete"
            if key in self._state.answers and method_in(complete, call.revision) is not None:
                done = ElicitationCompleteParams(elicitation_id=page.elicitation_id or "")
                with suppress(ChannelClosed, ConnectionLost):
                    await self._session.notify(complete, done, about=call)
                return
        if key in self._state.answers and (token := self._state.tokens.pop(key, "")):
            await self._questions.drop(token, repr(call.origin.holder))

    async def _end_round(self) -> Result:
        return await self._tell(await self._ask_all())


def strip_argument(params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the params of a tool call without the argument that names it; None if it has none."""
    arguments: Any = params.get("arguments")
    if not isinstance(arguments, dict) or ARGUMENT not in arguments:
        return None
    return {**params, "arguments": {name: value for name, value in arguments.items() if name != ARGUMENT}}
