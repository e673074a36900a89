"""What a client answers when a server asks: one set of callables for both eras, and the capabilities that follow from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from hinge.errors import HingeError, InvalidParams, InvalidResponse, MethodNotFound, ProtocolError, shorten
from hinge.protocol.validation import compile_schema, first_problem
from hinge.schema.content import TextContent
from hinge.schema.elicitation import ElicitFormParams, ElicitResult, ElicitUrlParams
from hinge.schema.input_required import InputRequest
from hinge.schema.lifecycle import ClientCapabilities, Elicitation, RootsCapability, Sampling
from hinge.schema.roots import ListRootsResult, Root
from hinge.schema.sampling import CreateMessageParams, CreateMessageResult

Elicited: TypeAlias = ElicitResult | Mapping[str, Any] | None
#: Fills in a form. A mapping accepts, with its fields (the form's defaults are filled in); None declines.
OnElicit: TypeAlias = Callable[[ElicitFormParams], Elicited | Awaitable[Elicited]]
#: Opens a page after the user agreed. True accepts, False declines.
Opened: TypeAlias = ElicitResult | bool
OnElicitUrl: TypeAlias = Callable[[ElicitUrlParams], Opened | Awaitable[Opened]]
Sampled: TypeAlias = CreateMessageResult | str
#: Asks a model. A text is the assistant's answer.
OnSample: TypeAlias = Callable[[CreateMessageParams], Sampled | Awaitable[Sampled]]
#: The folders that servers may know.
Roots: TypeAlias = Sequence[Root | str | Path]
OnRoots: TypeAlias = Roots | Callable[[], Roots | Awaitable[Roots]]

#: The clients that answer a question here, the innermost last: answering one server may mean to call another.
_answering: ContextVar[tuple[Answers, ...]] = ContextVar("hinge_answering", default=())


def asking_server() -> str | None:
    """The server whose question is being answered here, in words for the user who must know (ELIC-19); None outside."""
    answering = _answering.get()
    return answering[-1].asker() if answering else None


class SamplingRejected(ProtocolError):
    """The user doesn't want this: raise it in `on_sample` to refuse a request to the model (SAMP-12)."""

    code = -1

    def __init__(self, message: str = "User rejected sampling request") -> None:
        super().__init__(message)


class Answers:
    """The callables of one client."""

    def __init__(
        self,
        *,
        on_elicit: OnElicit | None = None,
        on_elicit_url: OnElicitUrl | None = None,
        on_sample: OnSample | None = None,
        on_roots: OnRoots | None = None,
        sampling_tools: bool = False,
    ) -> None:
        self._on_elicit = on_elicit
        self._on_elicit_url = on_elicit_url
        self._on_sample = on_sample
        self._on_roots = on_roots
        self._sampling_tools = sampling_tools
        #: Says who asks; the client sets it.
        self.asker: Callable[[], str | None] = lambda: None
        #: The way of a question within a result, if it isn't straight to `answer`; the client sets it.
        self.around: Callable[[str, bytes], Awaitable[Any]] | None = None

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client may declare: what it can answer."""
        form: dict[str, Any] | None = {} if self._on_elicit is not None else None
        url: dict[str, Any] | None = {} if self._on_elicit_url is not None else None
        asks = form is not None or url is not None
        sampling = Sampling(tools={} if self._sampling_tools else None)
        return ClientCapabilities(
            elicitation=Elicitation(form=form, url=url) if asks else None,
            sampling=sampling if self._on_sample is not None else None,
            roots=RootsCapability(list_changed=True) if self._on_roots is not None else None,
        )

    async def answer(self, method: str, params: Any) -> Any:
        """One question, as JSON text or decoded params. Raises MethodNotFound for what isn't declared (ROOT-04)."""
        with self._asked():
            if method == "elicitation/create":
                return await self._elicit(params)
            if method == "sampling/createMessage" and self._on_sample is not None:
                return await self._sample(params)
            if method == "roots/list" and self._on_roots is not None:
                return await self._roots()
            raise MethodNotFound(method)

    async def all(self, requests: Mapping[str, InputRequest]) -> dict[str, Any]:
        """The answers to the questions of one round, asked together; the first failure ends the others (MRTR-06)."""
        tasks = {
            key: asyncio.create_task(self._input(request.method, request.params)) for key, request in requests.items()
        }
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        return {key: task.result() for key, task in tasks.items()}

    async def _input(self, method: str, params: Any) -> Any:
        if method not in ("elicitation/create", "sampling/createMessage", "roots/list"):  # C-084
            raise InvalidResponse(f"The server asked for {shorten(method)!r}, which no call may ask for")
        text = msgspec.json.encode({} if params is UNSET else params)
        try:
            return await (self.answer(method, text) if self.around is None else self.around(method, text))
        except MethodNotFound as exc:
            raise InvalidResponse(f"The server asked for {method}, which this client did not declare") from exc

    async def _elicit(self, params: Any) -> ElicitResult:
        if _member(params, "mode") == "url":
            return await self._open(params)
        if self._on_elicit is None:
            raise MethodNotFound("elicitation/create") if self._on_elicit_url is None else _no_mode("form")
        request = _decode(params, ElicitFormParams)
        said = await _awaited(self._on_elicit(request))
        if said is None:
            return ElicitResult(action="decline")
        if isinstance(said, ElicitResult):
            return said
        content = {**_defaults(request.requested_schema), **said}
        _check(content, request)
        return ElicitResult(action="accept", content=content)

    async def _open(self, params: Any) -> ElicitResult:
        if self._on_elicit_url is None:
            raise _no_mode("url")  # ELIC-16
        agreed = await _awaited(self._on_elicit_url(_decode(params, ElicitUrlParams)))
        if isinstance(agreed, ElicitResult):
            return agreed
        return ElicitResult(action="accept" if agreed else "decline")

    async def _sample(self, params: Any) -> CreateMessageResult:
        assert self._on_sample is not None
        request = _decode(params, CreateMessageParams)
        if (request.tools or request.tool_choice) and not self._sampling_tools:  # SAMP-05
            raise InvalidParams("This client did not declare sampling.tools")
        said: Sampled = await _awaited(self._on_sample(request))
        if isinstance(said, str):
            return CreateMessageResult(role="assistant", content=TextContent(text=said), model="unknown")
        return said

    async def _roots(self) -> ListRootsResult:
        given = self._on_roots() if callable(self._on_roots) else self._on_roots
        return ListRootsResult(roots=[_root(item) for item in await _awaited(given) or ()])

    @contextmanager
    def _asked(self) -> Iterator[None]:
        token = _answering.set((*_answering.get(), self))
        try:
            yield
        finally:
            _answering.reset(token)

    def refuse_while_answering(self, method: str) -> None:
        """A question of a server must not lead to a request to it: it would wait for us (C-086). Raises HingeError."""
        if self in _answering.get():
            raise HingeError(f"{method} can't be asked while a question of the server is being answered")


def _root(item: Root | str | Path) -> Root:
    if isinstance(item, Root):
        return item
    uri = str(item)
    return Root(uri=uri if uri.startswith("file://") else Path(item).absolute().as_uri())


def _decode(params: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(params or b"{}", type=kind)
    except msgspec.MsgspecError as exc:
        raise InvalidParams(f"Invalid request parameters: {exc}") from exc


def _member(params: Any, name: str) -> Any:
    found = msgspec.json.decode(params or b"{}")
    return found.get(name) if isinstance(found, dict) else None


def _no_mode(mode: str) -> InvalidParams:
    return InvalidParams(f"This client did not declare elicitation mode {mode!r}")


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What the form says of its own (ELIC-09)."""
    fields = schema.get("properties")
    found = fields.items() if isinstance(fields, dict) else ()
    return {name: field["default"] for name, field in found if isinstance(field, dict) and "default" in field}


def _check(content: dict[str, Any], request: ElicitFormParams) -> None:
    """Our own answer must fit the form (ELIC-24), by a validator that no server can abuse. Raises HingeError."""
    try:
        problem = first_problem(compile_schema(request.requested_schema), content)
    except ValueError as exc:
        raise InvalidParams(f"The form has {exc}") from exc
    if problem is not None:
        raise HingeError(f"on_elicit's answer to {shorten(request.message)!r} doesn't fit the form: {problem}")


async def _awaited(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value
