"""The Inspector's scriptable client walks the plan, one process per step; prints the report of the other clients.

Knows the Inspector's command line and exit codes.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.interop.answers import Asked
from tests.interop.peers import locate
from tests.interop.processes import environment
from tests.interop.report import Heard, OnProgress, Settings, settings, shape, walk

TOOL_FAILED = 5
NOT_PORTABLE = 6

ONE_RUN = "each step is a run of its own, which prints the result only"
A_SECOND = "each run takes a second, and others show the same"
NOBODY = "nobody is there to be asked"
METHODS = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}


class InspectorFailed(Exception):
    """The Inspector ended with an exit code of its own, or with the server's JSON-RPC error."""

    def __init__(self, exit_code: int, message: str, code: int | None) -> None:
        super().__init__(f"exit {exit_code}: {message}")
        self.exit_code = exit_code
        self.code = code


SKIPS = {
    "unknown": "it looks an unknown tool up in its own list and never sends the call",
    "progress": ONE_RUN,
    "logging": ONE_RUN,
    "watch": ONE_RUN,
    "cancel": ONE_RUN,
    "limit": ONE_RUN,
    "concurrent": ONE_RUN,
    "page": "it has no option for a cursor",
    "request": "it knows its own methods only",
    "complete": "it has no option for completion",
    "ask": NOBODY,
    "ask_prompt": NOBODY,
    "ask_read": NOBODY,
    "roots": NOBODY,
    "large": A_SECOND,
    "huge": A_SECOND,
    "read_template": A_SECOND,
    "prompt_all": A_SECOND,
    "error": A_SECOND,
    "afterwards": A_SECOND,
}
TWICE = "each run starts a server, too, and HTTP shows the same"
SKIPS_ON_STDIO = {
    "structured": TWICE,
    "bad_arguments": TWICE,
    "templates": TWICE,
    "read_binary": TWICE,
    "read_missing": TWICE,
    "prompt_blocks": TWICE,
    "prompt_missing": TWICE,
    "prompt_incomplete": TWICE,
}


class Inspector:
    def __init__(self, chosen: Settings) -> None:
        self.logs: list[dict[str, Any]] = []
        self.heard: Heard = []
        self.asked = Asked({})
        self.chosen = chosen
        self.skips: Mapping[str, str] = {**SKIPS, **(SKIPS_ON_STDIO if chosen.transport == "stdio" else {})}

    async def run(self, *options: str) -> tuple[int, dict[str, Any]]:
        """One run; returns its exit code and the result. Raises `InspectorFailed` when there is none."""
        era = "legacy" if self.chosen.era == "2025" else "modern"
        command = [*locate().inspector]
        common = ["--protocol-era", era, "--format", "json", "-q", *options]
        if self.chosen.transport == "stdio":
            command += [*common, "--", *self.chosen.command]
        else:
            command += [self.chosen.target, "--stored-auth-only", *common]
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

    async def listed(self, kind: str) -> dict[str, Any]:
        strictly = ("--strict",) if kind == "tools" else ()
        _, result = await self.run("--method", METHODS[kind], *strictly)
        return {"items": result["resourceTemplates" if kind == "templates" else kind], "pages": None}

    async def call(
        self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None, level: str | None = None
    ) -> dict[str, Any]:
        given = ["--tool-args-json", json.dumps(arguments)]
        exit_code, result = await self.run("--method", "tools/call", "--tool-name", name, *given)
        is_error = bool(result.get("isError"))
        if is_error != (exit_code == TOOL_FAILED):
            raise InspectorFailed(exit_code, "exit code and isError disagree", None)
        return shape(result["content"], result.get("structuredContent"), is_error)

    async def read(self, uri: str) -> list[dict[str, Any]]:
        _, result = await self.run("--method", "resources/read", "--uri", uri)
        contents: list[dict[str, Any]] = result["contents"]
        return contents

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        given = [f"{key}={value}" for key, value in arguments.items()]
        options = ["--prompt-args", *given] if given else []
        _, result = await self.run("--method", "prompts/get", "--prompt-name", name, *options)
        return result

    async def page(self, kind: str, cursor: str) -> Any:
        raise NotImplementedError

    async def complete(
        self, reference: dict[str, str], argument: str, value: str, given: dict[str, str] | None
    ) -> dict[str, Any]:
        raise NotImplementedError

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise NotImplementedError

    def watch(self, uri: str | None) -> Any:
        raise NotImplementedError

    async def watch_to_end(self, uri: str, ready: Callable[[], None]) -> Any:
        raise NotImplementedError

    async def watch_on(self, uri: str, ready: Callable[[], None]) -> Any:
        raise NotImplementedError

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
