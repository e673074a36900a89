"""Input in the handshake era: a request to the client, while the handler waits.

The era is closed: this code is maintained, but gets no new features.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET

from gemel.errors import GemelError, PeerError, ToolError
from gemel.protocol.records import Call
from gemel.protocol.states import CallState
from gemel.schema.base import Result
from gemel.server.elicitation.elicit import ClientInput, ElicitationStrategy, InputRefused, RunningStep, StepCall
from gemel.session import Session
from gemel.telemetry import current_telemetry
from gemel.values.encoding import plain_value


async def request_client(
    session: Session, call: Call, method: str, params: object, total: float | None = None
) -> msgspec.Raw:
    """Send a request to the client of a call and wait for its result, as JSON text.

    Args:
        session: The session of the call.
        call: The call; over HTTP the request goes on its stream while it runs.
        method: The method of the request.
        params: Its params.
        total: Seconds until it fails; `limits.input_wait` by default.

    Raises:
        CallError: There is no result.
        GemelError: The client is stateless, or waits for the answer to `initialize`.
    """
    call.era.check_server_request(method)
    limit = session.connection.limits.input_wait if total is None else total
    about = call if call.state is CallState.RUNNING else None
    telemetry, pending = current_telemetry(), session.register_request(method)
    if telemetry is None:
        return await session.send_request(pending, params, about=about, total=limit)
    from gemel.server.session_telemetry import describe_request

    network, details = describe_request(session, call.revision, pending.id)
    with telemetry.sending(method, {}, network, details) as (_, trace):
        members = {} if params is UNSET else plain_value(params)
        members["_meta"] = {**members.get("_meta", {}), **trace}
        return await session.send_request(pending, members, about=about, total=limit)


class HandshakeElicitation(ElicitationStrategy):
    """Sends each request for input to the client; the handler runs once."""

    async def answer(self, item: ClientInput[Any]) -> Any:
        """Send the request and wait; meanwhile the time limit of the call is paused."""
        if item.timeout is not None:
            item.timeout.pause()
        try:
            raw = await request_client(self._session, self._call, item.method, item.params)
            return msgspec.json.decode(raw, type=item.kind)
        except PeerError as exc:
            raise InputRefused(exc.error, item.method) from exc
        except msgspec.MsgspecError as exc:
            raise ToolError(f"The client's answer to {item.method} can't be read: {exc}") from exc
        finally:
            if item.timeout is not None:
                item.timeout.resume()

    async def step(self, call: StepCall) -> Any:
        """Run the step: the call has one round only."""
        value, _ = await call.run(RunningStep(os.urandom(16).hex()))
        return value

    async def suspend(self, task: asyncio.Task[Any] | None) -> NoReturn:
        """There are no rounds in this era."""
        raise GemelError(
            f"{self._call.method}: a result with resultType input_required exists in the stateless era only"
        )

    async def settle(self, task: asyncio.Task[Any], error: BaseException | None) -> Result | None:
        """Handlers are not suspended in this era."""
        return None
