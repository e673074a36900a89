"""The rounds of a call that was asked for, in the stateless era, where what is behind the policy has rounds of its own.

A server behind a proxy, or a handler that returns `InputRequiredResult`, sends a request state of its own. It travels inside one of
the policy, which says who approved the call, and is given back alone in the next round.
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET

from gemel.errors import InvalidParams
from gemel.schema.input_required import InputRequiredResult
from gemel.server.context import Context, served_call


class ApprovedRound(msgspec.Struct, array_like=True):
    """Who approved the call, and the request state of what is behind the policy."""

    by: str
    state: str | None


_decoder = msgspec.msgpack.Decoder(ApprovedRound)


def _binding(ctx: Context[Any], digest: str) -> bytes:
    owner = served_call(ctx).call.origin.owner
    return sha256(msgspec.json.encode(["policy", owner, digest])).digest()


async def approved_round(ctx: Context[Any], state: Any, digest: str) -> ApprovedRound | None:
    """What an earlier round of the same call brought; None for the first one, and for a state of somebody else."""
    if not isinstance(state, str) or ctx.depth:
        return None
    try:
        return _decoder.decode(await served_call(ctx).request_states.decode(state, _binding(ctx, digest)))
    except (InvalidParams, msgspec.MsgspecError):
        return None


async def with_approval(ctx: Context[Any], result: Any, by: str, digest: str) -> Any:
    """The result; one that ends a round, other than by `ctx.elicit`, with the approval in its request state."""
    if isinstance(result, InputRequiredResult):
        inner = None if result.request_state is UNSET else result.request_state
    elif isinstance(result, Mapping) and result.get("resultType") == "input_required":
        inner = result.get("requestState")
    else:
        return result
    served = served_call(ctx)
    elicitation = (served.root or served).elicitation
    if ctx.depth or (elicitation is not None and elicitation.has_ended_round):
        return result
    payload = msgspec.msgpack.encode(ApprovedRound(by, inner))
    state = await served.request_states.encode(payload, _binding(ctx, digest))
    if isinstance(result, InputRequiredResult):
        return msgspec.structs.replace(result, request_state=state)
    return {**result, "requestState": state}
