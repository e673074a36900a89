"""A call as text to use elsewhere: a `gemel` command, curl, a test."""

from __future__ import annotations

import keyword
import pprint
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from gemel.dev.target import DevTarget
from gemel.protocol.eras.base import EraName
from gemel.schema.methods import LISTS

CopyForm: TypeAlias = Literal["gemel", "curl", "pytest"]

#: Headers of a request that curl sets itself.
_OWN_OF_CURL = frozenset({"host", "content-length", "accept-encoding", "connection", "user-agent"})
_LOCAL = "http://127.0.0.1:8000/mcp"


def as_gemel(target: DevTarget, era: EraName, method: str, params: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return a call as a `gemel` command.

    Args:
        target: The server.
        era: The era of the call.
        method: The method.
        params: The params.
        schema: The input schema of the tool, if it is known.

    Raises:
        ValueError: There is no command for it.
    """
    words = _command(method, params, schema)
    return shlex.join(["gemel", words[0], *target.words, "--era", era, *words[1:], *_behind(target)])


def _behind(target: DevTarget) -> list[str]:
    return ["--", *target.arguments] if target.arguments else []


def _command(method: str, params: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    name, arguments = params.get("name"), params.get("arguments") or {}
    match method:
        case "tools/call" if isinstance(name, str) and isinstance(arguments, dict):
            return ["call", name, *(_argument(key, value, schema) for key, value in arguments.items())]
        case "prompts/get" if isinstance(name, str) and isinstance(arguments, dict):
            strings = {"properties": {key: {"type": "string"} for key in arguments}}
            return ["prompt", name, *(_argument(key, value, strings) for key, value in arguments.items())]
        case "resources/read" if isinstance(params.get("uri"), str):
            return ["read", params["uri"]]
        case "ping" | "server/discover":
            return ["ping"]
        case _ if any(method == of.method for of in LISTS.values()):
            return ["list", "--json"]
    raise ValueError(f"There is no command of gemel for {method} with these params")


def _argument(key: str, value: object, schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    declared = properties.get(key) if isinstance(properties, dict) else None
    is_text = isinstance(declared, dict) and declared.get("type") == "string"
    if isinstance(value, str) and is_text and not value.startswith("@") and "\n" not in value:
        return f"{key}={value}"
    return f"{key}:={_json(value)}"


def as_curl(url: str | None, headers: Mapping[str, str], body: bytes, target: DevTarget) -> str:
    """Return a message as a curl command. Secrets are written as `$TOKEN`.

    Args:
        url: The URL of the server; None for a program of our own, which the text starts over HTTP.
        headers: The headers of the request.
        body: The message.
        target: The server.

    Raises:
        ValueError: The target is a program of somebody else, which has no URL.
    """
    lines: list[str] = []
    if url is None:
        if not target.is_own:
            raise ValueError("The server is a program without a URL, so that curl can't reach it")
        command = shlex.join(["gemel", "run", *target.words, "--http", *_behind(target)])
        lines.append(f"# {' '.join(command.splitlines())}")
        url = _LOCAL
    parts = [f"curl -N {shlex.quote(url)}"]
    for name, value in headers.items():
        if name.lower() in _OWN_OF_CURL:
            continue
        is_secret = value == "…"
        quoted = shlex.quote(f"{name}: {'' if is_secret else value}")
        parts.append(f'-H {quoted}"$TOKEN"' if is_secret else f"-H {quoted}")
    parts.append(f"--data-binary {shlex.quote(body.decode())}")
    return "\n".join([*lines, " \\\n  ".join(parts)])


def as_pytest(
    place: str, era: EraName, method: str, params: Mapping[str, Any], result: Mapping[str, Any] | None
) -> str:
    """Return a call as a test that expects the same result.

    Args:
        place: What a client connects to: a URL, a file or a command line.
        era: The era of the call.
        method: The method.
        params: The params.
        result: The result; None if there is none.
    """
    name = params.get("name")
    words = [name if isinstance(name, str) else method]
    call, checks = _call(method, params, result)
    body = [f"    with Client({place!r}, era={era!r}) as client:", *_indented(call, 8), *_indented(checks, 4)]
    return "\n".join(["from gemel.sync import Client", "", "", f"def test_{_identifier(words)}() -> None:", *body, ""])


def _call(method: str, params: Mapping[str, Any], result: Mapping[str, Any] | None) -> tuple[str, str]:
    """The statement that makes the call, and those that check the result."""
    name, arguments = params.get("name"), params.get("arguments")
    known = isinstance(arguments, dict) or arguments is None
    if method == "tools/call" and isinstance(name, str) and known:
        failed = result is not None and result.get("isError") is True
        more = ", raise_on_error=False" if failed else ""
        call = f"result = client.call_tool({name!r}, {_literal(arguments or {})}{more})"
        return call, _tool_checks(result, failed=failed)
    if method == "resources/read" and isinstance(params.get("uri"), str):
        call = f"result = client.read_resource({params['uri']!r})"
        contents = None if result is None else result.get("contents")
        texts = (
            [content.get("text") for content in contents if isinstance(content, dict)]
            if isinstance(contents, list)
            else []
        )
        if texts and all(isinstance(text, str) for text in texts):
            return call, f"assert [content.text for content in result.contents] == {_literal(texts)}"
        return call, "assert result.contents"
    call = f"result = client.request({method!r}, {_literal(dict(params))})"
    if result is None:
        return call, "assert result is not None"
    shown = {key: value for key, value in result.items() if key not in ("_meta", "resultType", "ttlMs", "cacheScope")}
    lines = [f"assert result[{key!r}] == {_literal(value)}" for key, value in shown.items()]
    return call, "\n".join(lines) or "assert result is not None"


def _tool_checks(result: Mapping[str, Any] | None, *, failed: bool) -> str:
    if result is None:
        return "assert not result.is_error"
    if failed:
        return "assert result.is_error"
    if result.get("structuredContent") is not None:
        return f"assert result.structured_content == {_literal(result['structuredContent'])}"
    content = result.get("content")
    texts = [block.get("text") for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if texts and all(isinstance(text, str) for text in texts):
        if len(texts) == 1:
            return f"assert result.text == {_literal(texts[0])}"
        return f"assert [block.text for block in result.content] == {_literal(texts)}"
    return "assert not result.is_error"


def _literal(value: object) -> str:
    return pprint.pformat(value, width=100, sort_dicts=False)


def _indented(text: str, width: int) -> list[str]:
    return [f"{' ' * width}{line}" for line in text.splitlines()]


def _identifier(words: Sequence[str]) -> str:
    name = re.sub(r"[^0-9a-zA-Z]+", "_", "_".join(words)).strip("_").lower() or "call"
    return f"{name}_" if keyword.iskeyword(name) else name


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
