"""Input in the handshake era: a request to the client, while the handler waits."""

from __future__ import annotations

import asyncio
import os
from typing import Any, NoReturn

import msgspec

from gemel.errors import GemelError, PeerError, ToolError
from gemel.schema.input_required import InputRequiredResult
from gemel.server.elicitation.elicit import ClientInput, ElicitationStrategy, InputRefused, RunningStep, StepCall
from gemel.telemetry import current_telemetry
from gemel.values.encoding import plain_value


class HandshakeElicitation(ElicitationStrategy):
    """Sends each request for input to the client; the handler runs once."""

    async def answer(self, item: ClientInput[Any]) -> Any:
        """Send the request and wait; meanwhile the time limit of the call is paused."""
        limit = self._session.connection.limits.input_wait
        if item.timeout is not None:
            item.timeout.pause()
        try:
            raw = await self._request(item, limit)
            return msgspec.json.decode(raw, type=item.kind)
        except PeerError as exc:
            raise InputRefused(exc.error, item.method) from exc
        except msgspec.MsgspecError as exc:
            raise ToolError(f"The client's answer to {item.method} can't be read: {exc}") from exc
        finally:
            if item.timeout is not None:
                item.timeout.resume()

    async def _request(self, item: ClientInput[Any], limit: float) -> msgspec.Raw:
        telemetry, session = current_telemetry(), self._session
        if telemetry is None:
            return await session.request(item.method, item.params, about=self._call, total=limit)
        from gemel.server.session_telemetry import describe_request

        pending = session.register_request(item.method)
        network, details = describe_request(session, self._call.revision, pending.id)
        with telemetry.sending(item.method, {}, network, details) as (_, trace):
            params = plain_value(item.params)
            params["_meta"] = {**params.get("_meta", {}), **trace}
            return await session.send_request(pending, params, about=self._call, total=limit)

    async def step(self, call: StepCall) -> Any:
        """Run the step: the call has one round only."""
        value, _ = await call.run(RunningStep(os.urandom(16).hex()))
        return value

    async def suspend(self, task: asyncio.Task[Any] | None) -> NoReturn:
        """There are no rounds in this era."""
        raise GemelError(
            f"{self._call.method}: a result with resultType input_required exists in the stateless era only"
        )

    async def settle(self, task: asyncio.Task[Any], error: BaseException | None) -> InputRequiredResult | None:
        """Handlers are not suspended in this era."""
        return None
