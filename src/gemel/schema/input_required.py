"""`input_required`: a result of the stateless era that asks the client for input before the call can continue."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from gemel.schema.base import Model, Result

InputMethod = Literal["elicitation/create", "sampling/createMessage", "roots/list"]


class InputRequest(Model, kw_only=True):
    """One request for input: a method and its params, without `jsonrpc` and `id`."""

    method: str
    params: Any = UNSET


class InputRequiredResult(Result, kw_only=True):
    """The result of a call that needs input before it can continue.

    Args:
        input_requests: Requests for input, by key.
        request_state: Returned unchanged by the client when it repeats the call.
    """

    input_requests: dict[str, InputRequest] | None = None
    request_state: str | UnsetType = UNSET
