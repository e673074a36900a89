"""Judges messages as they stand on the wire against the published schemas of their revision, for all tests.

Two independent judges: the compact table of all five revisions (`wire_table.txt`), which knows where members came and
left; and the published models of the package `mcp-types`. That package has models of two revisions only, the
last handshake revision and the stateless one, and lets unknown members and nulls pass; older messages are held against
the models of the last handshake revision, which say what is required and of which type, but not what is too new.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

import pydantic
from mcp_types import methods

from tests.wire_table import REVISIONS, Row, alternatives, read_table

Side = Literal["client", "server"]

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S*\Z")
_BOUNDED = re.compile(r"(integer|number)\((\d*)\.\.(\d*)\)\Z")
_LIST = re.compile(r"\[(.*)\](?:\.\.(\d+))?\Z")


class Misfit(AssertionError):
    """A message that its revision doesn't allow: one line for each problem, and the message."""


def check_message(direction: Side, data: bytes, revision: str, *, answers: str | None = None) -> None:
    """Check one message, or a batch, that `direction` sent; `answers` names the method that a response answers.

    Without `answers` only the envelope of a response is checked; methods that no revision knows pass with any params.
    Raises Misfit.
    """
    assert revision in REVISIONS, revision
    message = json.loads(data)
    if isinstance(message, list) and revision == "2025-03-26":
        for one in message:
            check_message(direction, json.dumps(one).encode(), revision, answers=answers)
        return
    found = list(_message(direction, message, revision, answers))
    if not found and isinstance(message, dict):
        found = list(_modelled(direction, message, revision, answers))
    if found:
        raise Misfit("\n".join([f"{direction} at {revision}:", *found, data.decode()[:2000]]))


class WireCheck:
    """Checks all messages of one conversation, in the order of their sending, and knows what each response answers."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self._asked: dict[tuple[Side, str | int], str] = {}

    def __call__(self, direction: Side, data: bytes) -> None:
        """Check one message that this side sent. Raises Misfit."""
        message = json.loads(data)
        answers = None
        if isinstance(message, dict) and "method" not in message and "id" in message:
            asker: Side = "server" if direction == "client" else "client"
            answers = self._asked.pop((asker, message["id"]), None)
        check_message(direction, data, self.revision, answers=answers)
        if isinstance(message, dict) and "method" in message and "id" in message:
            self._asked[direction, message["id"]] = message["method"]


# ---------------------------------------------------------------- by the table


def _message(direction: Side, message: Any, revision: str, answers: str | None) -> Iterator[str]:
    if not isinstance(message, dict):
        yield "a message is an object"
        return
    if message.get("jsonrpc") != "2.0":
        yield 'jsonrpc: must be "2.0"'
    if "id" in message:
        yield from problems("id", message["id"], revision, "id")
    if "method" in message:
        yield from _unknown(message, {"jsonrpc", "id", "method", "params"})
        yield from _called(direction, message, revision)
    elif "error" in message:
        yield from _unknown(message, {"jsonrpc", "id", "error"})
        yield from _failed(message["error"])
    else:
        yield from _unknown(message, {"jsonrpc", "id", "result"})
        yield from () if "id" in message else ("id: missing",)
        yield from _answered(direction, message.get("result"), revision, answers)


def _unknown(message: Mapping[str, Any], known: set[str]) -> Iterator[str]:
    yield from (f"{name}: unknown" for name in message if name not in known)


def _called(direction: Side, message: Mapping[str, Any], revision: str) -> Iterator[str]:
    method = message["method"]
    row = read_table().row(direction, method, revision)
    if row is None:
        if any(known.method == method for known in read_table().rows):
            yield f"{method}: not for the {direction} to send"
        return
    if (row.result is None) == ("id" in message):
        yield f"{method}: a request has an id, a notification has none"
    if "params" in message:
        yield from problems(row.params, message["params"], revision, "params")
    elif not row.params_optional:
        yield "params: missing"


def _failed(error: Any) -> Iterator[str]:
    if not isinstance(error, dict):
        yield "error: an object"
        return
    yield from _unknown(error, {"code", "message", "data"})
    yield from problems("integer", error.get("code"), "", "error.code")
    yield from problems("string", error.get("message"), "", "error.message")


def _answered(direction: Side, result: Any, revision: str, answers: str | None) -> Iterator[str]:
    yield from problems("object", result, revision, "result")
    row = _asked_by_the_other(direction, answers, revision)
    if answers is not None and row is None:
        yield f"{answers}: no request at this revision"
    if row is not None and row.result is not None:
        yield from problems(row.result, result, revision, "result")


def _asked_by_the_other(direction: Side, method: str | None, revision: str) -> Row | None:
    asker = "server" if direction == "client" else "client"
    return None if method is None else read_table().row(asker, method, revision)


def problems(expression: str, value: Any, revision: str, path: str) -> list[str]:
    """What keeps a JSON value from being what the table's expression says; empty when nothing does."""
    expression = read_table().aliases.get(expression, expression)
    options = alternatives(expression)
    if len(options) == 1:
        return list(_one(options[0], value, revision, path))
    tried = [problems(option, value, revision, path) for option in options if _exists(option, revision)]
    if any(not found for found in tried):
        return []
    likely = [found for found in tried if not any(_is_tag(problem, path) for problem in found)]
    return min(likely or tried, key=len, default=[f"{path}: nothing of {expression} is of this revision"])


def _exists(option: str, revision: str) -> bool:
    kind = read_table().kinds.get(option)
    return kind is None or revision in kind.window


def _is_tag(problem: str, path: str) -> bool:
    return any(problem.startswith(f"{path}.{tag}: ") for tag in ("type", "method", "mode", "resultType"))


def _one(expression: str, value: Any, revision: str, path: str) -> Iterator[str]:
    listed = _LIST.match(expression)
    if listed is not None:
        yield from _listed(listed[1], listed[2], value, revision, path)
    elif expression[0] == "{":
        if not isinstance(value, dict):
            yield f"{path}: must be a map"
            return
        for key, item in value.items():
            yield from problems(expression[1:-1], item, revision, f"{path}.{key}")
    elif expression in read_table().kinds:
        yield from _object(expression, value, revision, path)
    elif expression in read_table().aliases:
        yield from problems(expression, value, revision, path)
    elif not _fits(expression, value):
        yield f"{path}: must be {expression}, is {str(value)[:60]!r}"


def _listed(inner: str, most: str | None, value: Any, revision: str, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: must be a list"
        return
    if most and len(value) > int(most):
        yield f"{path}: has more than {most} items"
    for place, item in enumerate(value):
        yield from problems(inner, item, revision, f"{path}[{place}]")


def _object(name: str, value: Any, revision: str, path: str) -> Iterator[str]:
    kind = read_table().kinds[name]
    if revision not in kind.window:
        yield f"{path}: {name} is not of this revision"
        return
    if not isinstance(value, dict):
        yield f"{path}: must be a {name}"
        return
    known = kind.in_revision(revision)
    for member in known.values():
        if member.name in value:
            yield from problems(member.expression, value[member.name], revision, f"{path}.{member.name}")
        elif not member.optional:
            yield f"{path}.{member.name}: missing"
    for found in value:
        if found not in known and (revision not in kind.open or kind.comes_after(revision, found)):
            yield f"{path}.{found}: not of this revision"


def _fits(expression: str, value: Any) -> bool:
    bounded = _BOUNDED.match(expression)
    if bounded is not None:
        low, high = float(bounded[2] or "-inf"), float(bounded[3] or "inf")
        return _fits(bounded[1], value) and low <= value <= high
    if expression[0] == "'":
        return bool(value == expression[1:-1])
    match expression:
        case "any":
            return True
        case "null":
            return value is None
        case "string" | "uri" | "base64":
            return isinstance(value, str) and _written(expression, value)
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "id":
            return isinstance(value, int | str) and not isinstance(value, bool)
    raise ValueError(f"the table says {expression!r}, which nobody explains")


def _written(form: str, text: str) -> bool:
    if form == "uri":
        return _URI.match(text) is not None
    if form == "base64":
        try:
            base64.b64decode(text, validate=True)
        except binascii.Error:
            return False
    return True


# ---------------------------------------------------------------- by the published models


def _modelled(direction: Side, message: Mapping[str, Any], revision: str, answers: str | None) -> Iterator[str]:
    model: Any = None
    subject: Any = None
    if "method" in message:
        surface = _surface(direction, "id" in message)
        model, subject = surface.get((message["method"], revision)), message
    elif answers is not None and "result" in message:
        results = methods.SERVER_RESULTS if direction == "server" else methods.CLIENT_RESULTS
        if message["result"].get("resultType") == "task" or "task" in message["result"]:  # the models have no tasks
            return
        model, subject = results.get((answers, revision)), message["result"]
    if model is None:
        return
    try:
        adapter(model).validate_python(subject, by_name=False)
    except pydantic.ValidationError as exc:
        yield from (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors())


def _surface(direction: Side, is_request: bool) -> Mapping[tuple[str, str], Any]:
    if direction == "client":
        return methods.CLIENT_REQUESTS if is_request else methods.CLIENT_NOTIFICATIONS
    return methods.SERVER_REQUESTS if is_request else methods.SERVER_NOTIFICATIONS


@cache
def adapter(model: Any) -> pydantic.TypeAdapter[Any]:
    """A model, or a union of models, as something that validates."""
    return pydantic.TypeAdapter(model)
