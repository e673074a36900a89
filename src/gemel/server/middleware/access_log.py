"""Access log, as middleware: one log record per request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any, Final

import msgspec

from gemel.errors import ProtocolError, shorten
from gemel.options import FLAG, METHOD_NAMES, check_values, instance, or_none, whole
from gemel.protocol.records import RefusedMessage
from gemel.server.context import Context
from gemel.server.dispatch import CallNext
from gemel.visible import escape_line


class _Target(msgspec.Struct):
    name: str | None = None
    uri: str | None = None


_named = msgspec.json.Decoder(_Target)

#: At most this many characters of the params are logged.
_PARAMS = 2000


_OPTIONS = {
    "logger": instance((str, logging.Logger), "the name of a logger, or the logger"),
    "level": whole(0)._replace(advice="use a number, as logging.INFO is"),
    "params": FLAG,
    "methods": or_none(METHOD_NAMES),
}


class AccessLog:
    """Middleware that logs one record per request, such as `tools/call forecast: ok, 1.3 ms`.

        server.add_middleware(AccessLog())

    The record has attributes for formatters that write JSON: `mcp_method`, `mcp_target` (the tool, prompt or URI),
    `mcp_outcome`, `mcp_ms`, `mcp_principal`, `mcp_client` and `mcp_client_version` (as the client says), `mcp_request_id`,
    `mcp_version`, `mcp_client_address` (over HTTP; behind a trusted proxy that of the client). The outcome is `ok`, `failed` (a
    result with `isError`), `asked` (a round that asks the user), `error -32602` (a JSON-RPC error code), `crashed` or `cancelled`.
    Messages that are refused before any middleware have a record of their own; see `refused`.
    Arguments and results are not logged.

    Args:
        logger: A logger, or the name of one.
        level: The level of the records.
        params: Whether to add `mcp_params`, the first 2,000 characters of the params, secrets included.
        methods: The methods that are logged. Default: all.

    Raises:
        DefinitionError: A value of the wrong type.
    """

    #: Results pass as they are.
    leaves_results: Final = True

    def __init__(
        self,
        logger: logging.Logger | str = "gemel.access",
        *,
        level: int = logging.INFO,
        params: bool = False,
        methods: Collection[str] | None = None,
    ) -> None:
        check_values(locals(), _OPTIONS)
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = level
        self._params = params
        self._methods = None if methods is None else frozenset(methods)

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Serve the request and log how it ended.

        Args:
            ctx: The context of the request.
            call_next: The rest of the chain.

        Returns:
            The result of the request.
        """
        is_logged = self._methods is None or ctx.method in self._methods
        if ctx.request_id is None or not is_logged or not self._logger.isEnabledFor(self._level):
            return await call_next(ctx)
        start, outcome = time.perf_counter(), "crashed"
        try:
            result = await call_next(ctx)
            outcome = outcome_of(result)
            return result
        except ProtocolError as exc:
            outcome = f"error {exc.error.code}"
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._write(ctx, outcome, (time.perf_counter() - start) * 1000)

    def refused(self, message: RefusedMessage) -> None:
        """Log a message that was refused before any middleware: an unknown revision, a malformed envelope, an id that is in use.

        The record has the attributes `mcp_method` (None if it could not be read), `mcp_outcome` (`refused -32022`), `mcp_error`,
        `mcp_principal` and `mcp_request_id`. With `methods`, messages of other and unknown methods are left out.

        Args:
            message: What was refused.
        """
        if self._methods is not None and message.method not in self._methods:
            return
        outcome, text = f"refused {message.error.code}", escape_line(shorten(message.error.message))
        more = {
            "mcp_method": None if message.method is None else shorten(message.method),
            "mcp_outcome": outcome,
            "mcp_error": text,
            "mcp_principal": message.principal,
            "mcp_request_id": message.request_id,
        }
        what = "a message" if message.method is None else escape_line(shorten(message.method))
        self._logger.log(self._level, "%s: %s, %s", what, outcome, text, extra=more)

    def _write(self, ctx: Context[Any], outcome: str, ms: float) -> None:
        target, client, address = target_of(ctx), ctx.client_info, ctx.client_address
        more: dict[str, Any] = {
            "mcp_method": ctx.method,
            "mcp_target": target,
            "mcp_outcome": outcome,
            "mcp_ms": round(ms, 3),
            "mcp_principal": ctx.principal,
            "mcp_client": shorten(client.name) if client is not None else None,
            "mcp_client_version": shorten(client.version) if client is not None else None,
            "mcp_request_id": ctx.request_id,
            "mcp_version": ctx.protocol_version,
            "mcp_client_address": None if address is None else address[0],
        }
        if self._params:
            more["mcp_params"] = shorten(bytes(ctx.params).decode("utf-8", "replace"), _PARAMS)
        what = " ".join(escape_line(shorten(text)) for text in (ctx.method, target) if text)
        self._logger.log(self._level, "%s: %s, %.1f ms", what, outcome, ms, extra=more)


def target_of(ctx: Context[Any]) -> str | None:
    """The name of the tool or prompt, or the URI of the resource; None if the params have neither."""
    try:
        named = _named.decode(ctx.params)
    except msgspec.MsgspecError:
        return None
    return shorten(named.name or named.uri or "") or None


def outcome_of(result: object) -> str:
    """The outcome of a request that was answered with a result."""
    if isinstance(result, dict):
        kind, failed = result.get("resultType"), result.get("isError")
    else:
        kind, failed = getattr(result, "result_type", None), getattr(result, "is_error", False)
    return "asked" if kind == "input_required" else "failed" if failed is True else "ok"
