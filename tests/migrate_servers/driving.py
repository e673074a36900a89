"""Starts a server over stdio, lists what it offers, and calls its tools, with Gemel's client and the 2025 protocol."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import msgspec

from gemel import Client, PeerError
from tests.migrate_servers.published import Call, execute

#: Seconds until a server has answered the first request, and for one call.
STARTING, CALLING = 90.0, 60.0


class Seen(NamedTuple):
    """What was seen of a server."""

    #: Seconds from the start of the process until the answer to `initialize`.
    first_answer: float
    #: The most memory that the process and its children used, in MiB; None where the system doesn't say.
    memory: float | None
    #: What it lists, as on the wire.
    lists: dict[str, Any]
    #: The results of the calls, as on the wire; for an error of the protocol its code and message.
    answers: list[dict[str, Any]]


class Officially(msgspec.Struct):
    """What the client of the official SDK saw of a server: the version of the protocol, the lists, and the answer to one call."""

    version: str
    lists: dict[str, Any]
    answer: dict[str, Any]


class NotStarted(Exception):
    """The server doesn't answer."""


async def drive(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], calls: Sequence[Call], log: Path
) -> Seen:
    """Start a server, list and call, and end it.

    Args:
        command: The command line.
        folder: The working directory.
        environment: All variables of the process.
        calls: The calls, one after the other.
        log: The file that gets what the process prints.

    Raises:
        NotStarted: It doesn't start, or its lists can't be read.
    """
    before = set(_children())
    options: Any = {"env": dict(environment), "cwd": folder, "stderr": log, "check_results": False}
    client = Client(list(command), era="2025", **options)
    begin = time.monotonic()
    try:
        async with asyncio.timeout(STARTING):
            await client.connect()
    except Exception as exc:
        with suppress(Exception):
            await client.close()
        raise NotStarted(_line(exc)) from exc
    first_answer = time.monotonic() - begin
    try:
        try:
            async with asyncio.timeout(STARTING):
                lists = await _lists(client)
        except Exception as exc:
            raise NotStarted(f"its lists: {_line(exc)}") from exc
        answers = [await _answer(client, call) for call in calls]
        memory = [_memory(process) for process in set(_children()) - before]
    finally:
        await client.close()
    return Seen(first_answer, max((size for size in memory if size), default=None), lists, answers)


def drive_officially(
    interpreter: Path,
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    call: Call,
    log: Path,
    *,
    mode: Literal["auto", "legacy"],
) -> Officially:
    """Start a server, list, and make one call with the client of the official SDK.

    Args:
        interpreter: The interpreter that has the official SDK.
        command: The command line of the server.
        folder: Its working directory.
        environment: All its variables.
        call: The call.
        log: The file that gets what the server prints.
        mode: How the client negotiates; "legacy" is the handshake.

    Raises:
        NotStarted: The client fails.
    """
    job = {
        "command": list(command),
        "folder": str(folder),
        "environment": dict(environment),
        "call": msgspec.to_builtins(call),
        "log": str(log),
        "mode": mode,
    }
    script = str(Path(__file__).with_name("official.py"))
    with TemporaryDirectory() as place:
        given, result = Path(place, "job.json"), Path(place, "result.json")
        given.write_bytes(msgspec.json.encode(job))
        _, printed = execute([str(interpreter), script, str(given), str(result)], folder, {}, STARTING + CALLING)
        if result.exists():
            return msgspec.json.decode(result.read_bytes(), type=Officially)
    errors = [line.strip("| ") for line in printed.splitlines() if "Error" in line]
    raise NotStarted(f"the official client: {(errors or ['no answer'])[-1]}")


async def _lists(client: Client) -> dict[str, Any]:
    capabilities = msgspec.to_builtins(client.server_capabilities)
    resources = "resources" in capabilities
    return {
        "instructions": client.instructions,
        "capabilities": capabilities,
        "tools": msgspec.to_builtins(await client.list_tools()),
        "prompts": msgspec.to_builtins(await client.list_prompts()) if "prompts" in capabilities else [],
        "resources": msgspec.to_builtins(await client.list_resources()) if resources else [],
        "templates": await _templates(client) if resources else [],
    }


async def _templates(client: Client) -> Any:
    try:
        return msgspec.to_builtins(await client.list_resource_templates())
    except PeerError as exc:
        if exc.code == -32601:  # servers with resources and without templates
            return []
        raise


async def _answer(client: Client, call: Call) -> dict[str, Any]:
    result: Any
    try:
        async with asyncio.timeout(CALLING):
            if call.read:
                result = await client.read_resource(call.read)
            elif call.prompt:
                result = await client.get_prompt(call.prompt, call.arguments)
            else:
                result = await client.call_tool(call.tool, call.arguments, raise_on_error=False)
    except PeerError as exc:
        return {"error": {"code": exc.code, "message": exc.message}}
    except Exception as exc:
        return {"error": {"code": None, "message": _line(exc)}}
    plain = msgspec.to_builtins(result)
    return plain if isinstance(plain, dict) else {"content": plain}


def succeeded(answer: Mapping[str, Any]) -> bool:
    """Whether a call was answered with a result that is no error."""
    return "error" not in answer and not answer.get("isError")


def differences(call: Call, old: Mapping[str, Any], new: Mapping[str, Any], changing: Sequence[str]) -> Iterator[str]:
    """Yield what a model reads otherwise in the answer of the migrated server.

    Args:
        call: The call.
        old: The answer of the original.
        new: The answer of the migrated server.
        changing: Patterns of what differs from one run to the next.
    """
    if succeeded(old) != succeeded(new):
        yield f"{call.name}: {_outcome(old)} before, {_outcome(new)} now: {_short(_texts(new, changing))}"
        return
    before, after = _texts(old, changing), _texts(new, changing)
    if before != after:
        yield f"{call.name}: was {_short(before)}, is {_short(after)}"
    before, after = (_masked(answer.get("structuredContent"), changing) for answer in (old, new))
    # The lists say already that texts have no structured content, and objects no field `result` around them.
    if before not in (after, {"result": after}) and not (after is None and set(before or {}) == {"result"}):
        yield f"{call.name}: structured content was {_short(before)}, is {_short(after)}"


def _outcome(answer: Mapping[str, Any]) -> str:
    return "a result" if succeeded(answer) else "an error"


#: What each library writes before the text of an error.
_FRAME = re.compile(r"^(Error executing tool \S+|Error calling tool '\S+'|Tool '\S+' failed): ")


def _texts(answer: Mapping[str, Any], changing: Sequence[str]) -> Any:
    """The contents; a text that is JSON counts by its meaning, as blanks in it do not."""
    if "error" in answer:
        return [_masked(answer["error"]["message"], changing)]
    found = []
    for content in answer.get("content") or answer.get("contents") or answer.get("messages") or ():
        if content.get("type") == "text":
            with suppress(ValueError):
                found.append(_masked(json.loads(content["text"]), changing))
                continue
            found.append(
                _masked(_FRAME.sub("", content["text"]) if answer.get("isError") else content["text"], changing)
            )
        else:
            found.append(_masked({key: value for key, value in content.items() if value is not None}, changing))
    return found


def _masked(value: Any, changing: Sequence[str]) -> Any:
    if isinstance(value, str):
        for pattern in changing:
            value = re.sub(pattern, "…", value)
        return value
    if isinstance(value, int | float) and any(re.fullmatch(pattern, str(value)) for pattern in changing):
        return "…"
    if isinstance(value, dict):
        return {key: _masked(one, changing) for key, one in value.items()}
    if isinstance(value, list):
        return [_masked(one, changing) for one in value]
    return value


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:100]}…{text[-57:]}"


def _line(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return " ".join(f"{type(exc).__name__}: {exc}".split())


def _children(process: str = "self") -> Iterator[int]:
    """The processes that a process started, and theirs, where the system has /proc."""
    for path in Path("/proc", process, "task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                yield int(child)
                yield from _children(child)


def _memory(process: int) -> float | None:
    with suppress(OSError):
        for line in Path("/proc", str(process), "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return None
