"""A call that needs something from the user, the model or the roots before it can go on (MRTR-01…MRTR-20)."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from hinge.schema.base import Model, Result

InputMethod = Literal["elicitation/create", "sampling/createMessage", "roots/list"]


class InputRequest(Model, kw_only=True):
    """One question: a method and its params, without `jsonrpc` and `id` (MRTR-04)."""

    method: str
    params: Any = UNSET


class InputRequiredResult(Result, kw_only=True):
    """The answer of a call that isn't done: questions by key, and a state to be echoed unchanged (MRTR-03).

    The era writes `resultType: "input_required"`.
    """

    input_requests: dict[str, InputRequest] | None = None
    request_state: str | UnsetType = UNSET
