"""Input in the stateless era: the call ends with `input_required`, and a retry with the answers runs the handler again.

Answers and results of steps travel in the encrypted `requestState`. See basic/patterns/mrtr of the specification.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.errors import GemelError, InvalidParams
from gemel.jsonrpc import ABSENT
from gemel.protocol.records import Call
from gemel.schema.base import Result
from gemel.schema.input_required import InputRequest, InputRequiredResult
from gemel.schema.methods import METHODS
from gemel.server.elicitation.elicit import ClientInput
from gemel.server.elicitation.request_state import RequestStateCodec
from gemel.server.elicitation.rounds import RepeatedElicitation, RoundState
from gemel.session import Session

StateT = TypeVar("StateT", bound=RoundState)


class _Retry(msgspec.Struct):
    """What a retry brings in its params."""

    input_responses: Raw | UnsetType = msgspec.field(name="inputResponses", default=UNSET)
    request_state: str | None = msgspec.field(name="requestState", default=None)


_retry_decoder = msgspec.json.Decoder(_Retry)


class RetriedElicitation(RepeatedElicitation[StateT]):
    """Of a call that its client retries with `requestState`. Raises InvalidParams for members that no retry has."""

    def __init__(self, session: Session, call: Call, codec: RequestStateCodec, state: StateT) -> None:
        super().__init__(session, call, codec, state)
        self._decoder: msgspec.msgpack.Decoder[StateT] = msgspec.msgpack.Decoder(type(state))
        try:
            self._retry: _Retry | None = _retry_decoder.decode(call.params if call.params is not ABSENT else b"{}")
        except msgspec.MsgspecError as exc:
            raise InvalidParams("Invalid request parameters", str(exc)) from None
        if self._retry.request_state is None:
            self._retry = None

    async def _load(self) -> None:
        """Decrypt it. Raises InvalidParams, and Overloaded if that needs a backend that is away."""
        retry, self._retry = self._retry, None
        if retry is not None:
            assert retry.request_state is not None
            self._state = self._decoder.decode(await self._codec.decode(retry.request_state, self._binding()))
            self._keep_answers(retry.input_responses)

    def _keep_answers(self, responses: Raw | UnsetType) -> None:
        """Keep the answers to what the state says was requested and not answered; others are ignored."""
        if responses is UNSET or bytes(responses) == b"null":
            return
        try:
            answers = msgspec.json.decode(responses, type=dict[str, Raw])
        except msgspec.MsgspecError:
            raise InvalidParams("inputResponses must be an object of answers by key") from None
        for key, value in answers.items():
            if key in self._state.requested and key not in self._state.answers:
                self._keep_answer(key, bytes(value))

    def _keep_answer(self, key: str, answer: bytes) -> None:
        self._state.answers[key] = answer

    def add(self, item: ClientInput[Any]) -> None:
        """Enter a request for input into this round, unless an earlier round brought its answer."""
        method = self._call.method
        row = METHODS.get(method)
        if self._call.id is not None and (row is None or not row.may_ask):
            raise GemelError(
                f"{method} can't request input from a stateless client: only tools/call, prompts/get and resources/read can"
            )
        super().add(item)

    def _unanswered(self) -> Iterable[tuple[str, ClientInput[Any]]]:
        return [(key, item) for key, item in self._requested.items() if key not in self._state.answers]

    async def _require(self, requests: dict[str, InputRequest]) -> InputRequiredResult:
        """The result that requests input and carries the state."""

        async def encode() -> str:
            return await self._codec.encode(msgspec.msgpack.encode(self._state), self._binding())

        return InputRequiredResult(
            result_type="input_required", input_requests=requests, request_state=await self._keep(encode)
        )


class StatelessElicitation(RetriedElicitation[RoundState]):
    """The requests for input of one call over all its rounds."""

    def __init__(self, session: Session, call: Call, codec: RequestStateCodec) -> None:
        super().__init__(session, call, codec, RoundState())

    async def load(self) -> None:
        """Decrypt what earlier rounds brought, once."""
        if self._retry is not None or self._loading is not None:
            await super().load()

    async def _end_round(self) -> Result:
        return await self._require(
            {key: InputRequest(method=item.method, params=item.params) for key, item in self._unanswered()}
        )
