"""A request that a handler makes of its own server, and that is served elsewhere in rounds, such as by a proxy.

What it requires is requested of the caller, as if the handler did. Its state is kept with that of the call, so that it goes on in
the next round of the call and doesn't begin again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw

from gemel.errors import ToolError
from gemel.schema.elicitation import ElicitFormParams
from gemel.schema.input_required import InputRequest, InputRequiredResult
from gemel.schema.methods import METHODS
from gemel.server.elicitation.elicit import ClientInput
from gemel.server.served_call import ServedCall
from gemel.values.encoding import encode_value

#: Rounds of one request after its first.
_MOST_ROUNDS = 16
#: Seconds before the second round of a request that required nothing; twice as many before each further one, up to one.
_PAUSE = 0.05


async def serve_rounds(
    served: ServedCall[Any], method: str, params: dict[str, Any], serve: Callable[[dict[str, Any]], Awaitable[Any]]
) -> Any:
    """Serve a nested request, in as many rounds as it takes.

    Args:
        served: The call that it is a part of.
        method: Its method.
        params: Its params.
        serve: Serves one round.

    Returns:
        The result, which requires input only if that can't be requested here: a handler of this process was suspended.

    Raises:
        ToolError: It took too many rounds.
    """
    if not METHODS[method].may_ask:
        return await serve(params)
    requests = served.input_requests
    key = requests.nested_key(method, params)
    kept, number = await requests.recall(key), -1
    while number + 1 < _MOST_ROUNDS:
        given = params
        if kept is not None:
            number, required = msgspec.json.decode(kept, type=tuple[int, InputRequiredResult])
            given = {**params, "inputResponses": await _ask(served, f"{key}{number}/", required)}
            given |= {"requestState": required.request_state} if isinstance(required.request_state, str) else {}
            if not required.input_requests:  # it needs time
                await asyncio.sleep(min(_PAUSE * 2**number, 1.0))
        try:
            result = await serve(given)
        except Exception:
            requests.remember(key, None)
            raise
        if not isinstance(result, InputRequiredResult):
            requests.remember(key, None)
            return result
        if not requests.is_relayed(result):
            return result
        kept = encode_value((number + 1, result))
        requests.remember(key, kept)
    requests.remember(key, None)
    raise ToolError(f"{method}: the server still requires input after {_MOST_ROUNDS} rounds")


async def _ask(served: ServedCall[Any], scope: str, required: InputRequiredResult) -> dict[str, Raw]:
    """Return the answers of the caller to what a round requires, by key."""
    items = {
        name: ClientInput(
            served.input_requests,
            one.method,
            _typed(one),
            Raw,
            bytes,
            label=f"ctx.{one.method.partition('/')[0]}(…)",
            key=f"{scope}{name}",
            task=served.suspendable_task,
            timeout=served.timeout,
        )
        for name, one in (required.input_requests or {}).items()
    }
    return {name: Raw(await item) for name, item in items.items()}


def _typed(request: InputRequest) -> Any:
    """The params of a request; those of a form as such, since it can be shown on a page."""
    params = request.params
    if request.method == "elicitation/create" and isinstance(params, dict) and params.get("mode", "form") == "form":
        return msgspec.convert(params, ElicitFormParams)
    return params
