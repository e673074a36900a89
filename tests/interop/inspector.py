"""The Inspector's scriptable client walks the plan, one process per step; prints the report of the other clients.

Knows the Inspector's command line and exit codes.
"""

import asyncio
import json
from typing import Any

from tests.interop.peers import locate
from tests.interop.processes import environment
from tests.interop.report import OnProgress, Settings, settings, shape, walk

TOOL_FAILED = 5
NOT_PORTABLE = 6


class InspectorFailed(Exception):
    """The Inspector ended with an exit code of its own, or with the server's JSON-RPC error."""

    def __init__(self, exit_code: int, message: str, code: int | None) -> None:
        super().__init__(f"exit {exit_code}: {message}")
        self.exit_code = exit_code
        self.code = code


class Inspector:
    # It looks an unknown tool up in its own list and never sends the call.
    skips: frozenset[str] = frozenset(("unknown", "progress", "logging", "cancel", "limit", "concurrent"))

    def __init__(self, chosen: Settings) -> None:
        self.logs: list[dict[str, Any]] = []
        self.chosen = chosen

    async def run(self, *options: str) -> tuple[int, dict[str, Any]]:
        """One run; returns its exit code and the result. Raises `InspectorFailed` when there is none."""
        era = "legacy" if self.chosen.era == "2025" else "modern"
        command = [*locate().inspector]
        common = ["--protocol-era", era, "--format", "json", "-q", *options]
        if self.chosen.transport == "http":
            command += [self.chosen.target, "--stored-auth-only", *common]
        else:
            command += [*common, "--", *self.chosen.command]
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        exit_code = process.returncode or 0
        try:
            result: dict[str, Any] = json.loads(out)["result"]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise _failure(exit_code, err.decode("utf-8", "replace")) from None
        if exit_code not in (0, TOOL_FAILED):
            raise InspectorFailed(exit_code, err.decode("utf-8", "replace")[-1500:], None)
        return exit_code, result

    async def connect(self) -> dict[str, Any]:
        _, result = await self.run("--method", "initialize")
        info = result.get("serverInfo") or {}
        return {
            "revision": result.get("protocolVersion"),
            "name": info.get("name"),
            "version": info.get("version"),
            "instructions": result.get("instructions"),
            "capabilities": result.get("capabilities"),
        }

    async def list_tools(self) -> list[dict[str, Any]]:
        _, result = await self.run("--method", "tools/list", "--strict")
        tools: list[dict[str, Any]] = result["tools"]
        return tools

    async def call(self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None) -> dict[str, Any]:
        given = ["--tool-args-json", json.dumps(arguments)]
        exit_code, result = await self.run("--method", "tools/call", "--tool-name", name, *given)
        is_error = bool(result.get("isError"))
        if is_error != (exit_code == TOOL_FAILED):
            raise InspectorFailed(exit_code, "exit code and isError disagree", None)
        return shape(result["content"], result.get("structuredContent"), is_error)

    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        raise NotImplementedError

    async def set_log_level(self, level: str) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open between the steps."""


def _failure(exit_code: int, stderr: str) -> InspectorFailed:
    """What the Inspector said on standard error: a JSON object on its last line, if all is well."""
    for line in reversed(stderr.strip().splitlines()):
        try:
            error = json.loads(line)["error"]
        except (json.JSONDecodeError, KeyError, TypeError):
            continue
        code = error.get("code")
        return InspectorFailed(exit_code, json.dumps(error)[:1500], code if isinstance(code, int) else None)
    return InspectorFailed(exit_code, stderr[-1500:], None)


async def main() -> None:
    chosen = settings()
    await walk("inspector", Inspector(chosen), chosen)


if __name__ == "__main__":
    asyncio.run(main())
