"""The questions of a server: forms, pages to open, prompts for a model, roots. A person answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec

from gemel.client.callbacks import Callbacks, InvalidAnswer, SamplingRejected, check_answer
from gemel.client.methods import CallNext, ClientContext
from gemel.dev.commands import Answer, Capability
from gemel.dev.journal import EventJournal
from gemel.dev.wire import SENT, MessageJournal
from gemel.errors import MethodNotFound
from gemel.jsonrpc import RequestId
from gemel.protocol.eras.base import EraName
from gemel.schema.lifecycle import ClientCapabilities, Elicitation, RootsCapability, Sampling

#: Questions that may be open at once; more are refused.
MAX_OPEN = 100

#: The id of the request of the server that is being served.
_REQUEST: ContextVar[RequestId | None] = ContextVar("gemel_dev_request", default=None)


class Question:
    """One question.

    Attributes:
        id: Its id.
        method: The method of the request.
        answer: The answer, when it is there; an exception refuses the question.
    """

    def __init__(self, number: int, method: str) -> None:
        self.id = f"q{number}"
        self.method = method
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()


class Questions:
    """All questions of a server, in both eras.

    Args:
        journal: Where they are shown.
    """

    def __init__(self, journal: EventJournal) -> None:
        self._journal = journal
        self._count = 0
        self._open: dict[str, Question] = {}
        #: Called with the id of a call and that of a question, None when it is answered.
        self.on_change: Callable[[str | None, str | None], None] = lambda call, question: None

    async def ask(self, era: EraName, method: str, params: dict[str, Any], call: str | None) -> dict[str, Any]:
        """Show a question and wait for its answer. Raises MethodNotFound if too many are open."""
        if len(self._open) >= MAX_OPEN:
            raise MethodNotFound(method)
        self._count += 1
        question = Question(self._count, method)
        self._open[question.id] = question
        kind = _kind(method, params)
        fields: dict[str, Any] = {"question": question.id, "era": era, "type": kind}
        if call is not None:
            fields["call"] = call
        self._journal.add("question", {**fields, **_asked(kind, params), "state": "open"}, key=question.id)
        self.on_change(call, question.id)
        ended = "gone"
        answer: dict[str, Any] | None = None
        try:
            answer = await question.answer
            ended = "answered"
            return answer
        except SamplingRejected:
            ended, answer = "answered", {"action": "decline"}
            raise
        finally:
            del self._open[question.id]
            self._journal.forget(question.id)
            self._journal.add("question", {**fields, "state": ended, **({} if answer is None else {"answer": answer})})
            self.on_change(call, None)

    def answer(self, command: Answer) -> None:
        """Answer a question. Raises ValueError if there is none, or the answer can't be sent."""
        question = self._open.get(command.question)
        if question is None or question.answer.done():
            raise ValueError(f"There is no open question {command.question!r}")
        if question.method == "elicitation/create":
            if command.action is None:
                raise ValueError("The answer needs an action: accept, decline or cancel")
            answer: dict[str, Any] = {"action": command.action}
            if command.content is not None:
                answer["content"] = command.content
        elif command.result is not None:
            answer = command.result
        elif command.action in ("decline", "cancel"):
            question.answer.set_exception(SamplingRejected())
            return
        else:
            raise ValueError(f"The answer needs a result: that of {question.method}")
        try:
            check_answer(question.method, answer)
        except InvalidAnswer as exc:
            raise ValueError(str(exc).replace("\n", " ")) from None
        question.answer.set_result(answer)


def _kind(method: str, params: dict[str, Any]) -> str:
    if method == "elicitation/create":
        return "url" if params.get("mode") == "url" else "form"
    return "sampling" if method == "sampling/createMessage" else "roots"


def _asked(kind: str, params: dict[str, Any]) -> dict[str, Any]:
    """What a person needs to know."""
    names = {"form": {"message": "message", "requestedSchema": "schema"}, "url": {"message": "message", "url": "url"}}
    if kind in names:
        return {shown: params[name] for name, shown in names[kind].items() if name in params}
    return {"params": params} if kind == "sampling" else {}


class PageCallbacks(Callbacks):
    """Passes the requests of a server on to a person.

    Args:
        questions: The questions.
        messages: The messages of the connection.
        era: The era of the connection.
        without: What the client is without.
        **callbacks: Callbacks for notifications.
    """

    def __init__(
        self, questions: Questions, messages: MessageJournal, era: EraName, without: list[Capability], **callbacks: Any
    ) -> None:
        super().__init__(**callbacks)
        self._questions = questions
        self._messages = messages
        self._era: EraName = era
        self._without = without

    @property
    def capabilities(self) -> ClientCapabilities:
        """All that a person can do, except for what is left out."""
        without = self._without
        return ClientCapabilities(
            elicitation=None if "elicitation" in without else Elicitation(form={}, url={}),
            sampling=None if "sampling" in without else Sampling(tools={}),
            roots=None if "roots" in without else RootsCapability(list_changed=True),
        )

    async def answer(self, method: str, params: bytes) -> Any:
        declared = self.capabilities
        known = {
            "elicitation/create": declared.elicitation,
            "sampling/createMessage": declared.sampling,
            "roots/list": declared.roots,
        }
        if known.get(method) is None:
            raise MethodNotFound(method)
        decoded = msgspec.json.decode(params or b"{}")
        request_id = _REQUEST.get()
        sent = SENT.get() if request_id is None else self._messages.call_of(request_id)
        call = None if sent is None else sent.call
        return await self._questions.ask(self._era, method, decoded if isinstance(decoded, dict) else {}, call)


async def note_request(ctx: ClientContext, call_next: CallNext) -> Any:
    """Middleware of a client that notes which request of the server is being served."""
    if not ctx.inbound or ctx.notification:
        return await call_next(ctx)
    token = _REQUEST.set(ctx.request_id)
    try:
        return await call_next(ctx)
    finally:
        _REQUEST.reset(token)
