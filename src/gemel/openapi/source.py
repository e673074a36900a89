"""Where an OpenAPI document comes from: a dict, JSON or YAML, a file, or a URL."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gemel.errors import DefinitionError, shorten
from gemel.server.features.yaml_values import read_yaml
from gemel.version import __version__, missing_extra

Source: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]

#: Largest document that is fetched, in bytes.
MAX_BYTES = 64 * 1024 * 1024
_URL = re.compile(r"https?://\S+")
#: What a path doesn't have: several lines, the beginning of JSON, or `key: value`.
_TEXT = re.compile(r"\n|^\s*[\[{]|:\s")


class ReadDocument(NamedTuple):
    """A document, and the URL that it was fetched from; empty for other sources."""

    root: dict[str, Any]
    url: str = ""


def read_document(source: Source, timeout: float) -> ReadDocument:
    """Read a document; one with a URL is fetched.

    Args:
        source: The document, its text, the path of a file, or a URL.
        timeout: Seconds that fetching may take.

    Raises:
        DefinitionError: It can't be read, or is not an object in JSON or YAML.
    """
    if isinstance(source, Mapping):
        return ReadDocument(dict(source))
    url = ""
    if isinstance(source, str) and _URL.fullmatch(source):
        source, url = _fetch(source, timeout)
    elif isinstance(source, os.PathLike) or (isinstance(source, str) and not _TEXT.search(source)):
        source = _read_file(source)
    if not isinstance(source, str | bytes):
        raise DefinitionError(
            f"An OpenAPI document is a dict, JSON or YAML text, a path or a URL, not {type(source).__name__}"
        )
    return ReadDocument(_parse(_decode(source)), url)


def _read_file(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as exc:
        text = f"The OpenAPI document {shorten(os.fspath(path))!r} can't be read: {_reason(exc)}"
        raise DefinitionError(text) from exc


def _fetch(url: str, timeout: float) -> tuple[bytes, str]:
    """Return the body and the URL after redirects."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    wanted = "application/json, application/yaml;q=0.9, */*;q=0.5"
    try:
        request = Request(url, headers={"Accept": wanted, "User-Agent": f"gemel/{__version__}"})
        with urlopen(request, timeout=timeout) as response:
            body: bytes = response.read(MAX_BYTES + 1)
            final: str = response.geturl()
    except HTTPError as exc:
        exc.close()
        hint = ": fetch it with your credentials, and pass its text" if exc.code in (401, 403) else ""
        raise DefinitionError(f"{shorten(url)} answered with HTTP {exc.code}{hint}") from None
    except (OSError, ValueError, HTTPException) as exc:
        raise DefinitionError(f"{shorten(url)} can't be fetched: {_reason(exc)}") from exc
    if len(body) > MAX_BYTES:
        raise DefinitionError(f"{shorten(url)} has more than {MAX_BYTES} bytes")
    return body, final


def _reason(exc: BaseException) -> object:
    """What the system says, without the number of the error."""
    reason = getattr(exc, "reason", exc)
    return getattr(reason, "strerror", None) or reason


def _decode(source: str | bytes) -> str:
    try:
        return source if isinstance(source, str) else source.decode(json.detect_encoding(source))
    except UnicodeDecodeError as exc:
        raise DefinitionError(f"The OpenAPI document is not text: {exc}") from None


def _parse(text: str) -> dict[str, Any]:
    """Read JSON, or YAML: JSON that is wrong would mostly be wrong in YAML, too."""
    try:
        root = msgspec.json.decode(text) if text.lstrip()[:1] in ("{", "[") else _parse_yaml(text)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise DefinitionError(f"The OpenAPI document is not JSON: {exc}") from None
    if not isinstance(root, dict):
        raise DefinitionError("The OpenAPI document is not an object in JSON or YAML")
    return root


def _parse_yaml(text: str) -> Any:
    try:
        return read_yaml(text)
    except ImportError:
        raise DefinitionError(missing_extra("The OpenAPI document is not JSON, and YAML needs", "openapi")) from None
    except ValueError as exc:
        raise DefinitionError(f"The OpenAPI document {exc}") from None
