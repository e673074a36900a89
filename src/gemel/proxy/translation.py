"""Translate results, requests and errors from one protocol revision to another.

Between equal revisions everything is unchanged. Otherwise a value is decoded, adapted to the other revision, and members and
items that our types don't know are added again. No I/O.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct

from gemel.errors import (
    CallError,
    CallTimeout,
    ConnectionLost,
    HttpStatus,
    InternalError,
    InvalidResponse,
    MissingClientCapability,
    PeerError,
    ProtocolError,
    ResourceNotFound,
    relayed,
)
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.inline_refs import inline_references
from gemel.protocol.revisions.adapt import known_in, shape
from gemel.schema.base import RESERVED, SERVER_INFO, CacheableResult, Model, Result
from gemel.schema.elicitation import ElicitFormParams, ElicitResult, ElicitUrlParams
from gemel.schema.methods import METHODS
from gemel.schema.revisions import knows
from gemel.schema.roots import ListRootsResult
from gemel.schema.sampling import CreateMessageParams, CreateMessageResult
from gemel.schema.tools import ListToolsResult, Tool, is_object_schema

logger = logging.getLogger("gemel")

Json = dict[str, Any]

#: The requests that a server may send, with the types of their results.
RESULT_TYPES: dict[str, type[Result]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}

_NOT_FOUND = -32002
_URLS_REQUIRED = -32042
_INVALID_PARAMS = -32602
_MISSING_CAPABILITY = -32021
#: Codes that are reserved in the stateless era, and free in the handshake era.
_RESERVED_CODES = range(-32099, -31999)
#: Codes of the stateless era for invalid requests: the proxy made the request, not its caller.
_OUR_FAULT = frozenset({-32020, -32022})


def is_stateless(revision: str) -> bool:
    """Return whether a revision is of the stateless era."""
    return STATELESS.knows(revision)


def translate(text: bytes | Raw, kind: type[Model], source: str, target: str) -> Json:
    """Translate a value; members of the result may be JSON text. Raises TooNew.

    Items of lists that aren't of the type are forwarded unchanged, and so is a value that is wrong in another way.
    """
    whole: Json = msgspec.json.decode(text, type=dict[str, Raw])
    if source == target:
        return whole
    unknown: dict[str, dict[int, Any]] = {}
    try:
        try:
            typed = msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError:
            unknown = _unknown_items(whole, kind)
            if not unknown:
                raise
            text = msgspec.json.encode(whole | _without_items(whole, unknown))
            typed = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError) as exc:
        logger.debug("%s is forwarded unchanged: %s", kind.__name__, exc)
        return whole
    if isinstance(typed, ListToolsResult) and not knows(target, "any structured content"):
        typed.tools = [_without_mixed_schema(tool) for tool in typed.tools]
    translated: Json = _with_unknown_members(msgspec.json.decode(text), typed, shape(typed, target))
    for member, items in unknown.items():
        for index, item in items.items():
            translated[member].insert(index, item)
    return translated


def _unknown_items(whole: Json, kind: type[Model]) -> dict[str, dict[int, Any]]:
    """Return the items of lists that aren't of the type of the list, by the member and the place."""
    found: dict[str, dict[int, Any]] = {}
    for field in msgspec.structs.fields(kind):
        if get_origin(field.type) is not list or field.encode_name not in whole:
            continue
        decoder = msgspec.json.Decoder(get_args(field.type)[0])
        for index, item in enumerate(msgspec.json.decode(whole[field.encode_name], type=list[Raw])):
            try:
                decoder.decode(item)
            except (msgspec.MsgspecError, RecursionError):
                found.setdefault(field.encode_name, {})[index] = msgspec.json.decode(item)
    return found


def _without_items(whole: Json, unknown: dict[str, dict[int, Any]]) -> Json:
    return {
        member: [item for index, item in enumerate(msgspec.json.decode(whole[member])) if index not in items]
        for member, items in unknown.items()
    }


def _without_mixed_schema(tool: Tool) -> Tool:
    """A tool without an output schema that objects and other values fit.

    Such a schema is wrapped for the caller, and so must its objects be; but a result doesn't say which schema it fits.
    """
    schema = tool.output_schema
    types = schema.get("type", ["object"]) if isinstance(schema, dict) else ["object"]
    if schema is None or is_object_schema(schema) or "object" not in types:
        return tool
    return msgspec.structs.replace(tool, output_schema=None)


def _with_unknown_members(original: object, typed: object, adapted: object) -> Any:
    """Return the adapted value as JSON, with those members of the original that its type doesn't know."""
    if not isinstance(typed, Struct) or type(typed) is not type(adapted) or not isinstance(original, dict):
        return msgspec.to_builtins(adapted)
    members: Json = msgspec.to_builtins(adapted)
    fields, tag = _members(type(typed))
    for member, value in original.items():
        name = fields.get(member)
        if name is None:
            if member != tag:
                members[member] = value
        elif member in members:
            members[member] = _merge_inner(value, getattr(typed, name), getattr(adapted, name))
    return members


@cache
def _members(kind: type[Struct]) -> tuple[dict[str, str], str | None]:
    """Return the JSON names of a type with their fields, and the JSON name of its tag."""
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    return fields, kind.__struct_config__.tag_field


def _merge_inner(original: Any, typed: Any, adapted: Any) -> Any:
    if isinstance(typed, list) and isinstance(adapted, list) and len(typed) == len(adapted) == len(original):
        return [_with_unknown_members(*three) for three in zip(original, typed, adapted, strict=True)]
    return _with_unknown_members(original, typed, adapted)


# ---------------------------------------------------------------- results


def _with_inlined_schemas(tools: object) -> Any:
    """A list of tools whose schemas have no references, where that is possible."""
    for tool in tools if isinstance(tools, list) else ():
        for member in tool.keys() & {"inputSchema", "outputSchema"} if isinstance(tool, dict) else ():
            tool[member] = inline_references(tool[member])
    return tools


def _without_task_support(tools: object) -> Any:
    """A list of tools that are not called as tasks, since tasks are not forwarded."""
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("execution"), dict):
            tool["execution"].pop("taskSupport", None)
            if not tool["execution"]:
                del tool["execution"]
    return tools


def result_for(method: str, text: Raw, source: str, target: str) -> Json:
    """Translate the result of a request. Raises TooNew."""
    row = METHODS.get(method)
    kind = row.result if row is not None and row.result is not None else Result
    result = translate(text, kind, source, target)
    if method == "tools/list" and b'"$ref"' in bytes(text):
        result["tools"] = _with_inlined_schemas(_plain(result.get("tools")))
    if method == "tools/list" and b'"taskSupport"' in bytes(text):
        result["tools"] = _without_task_support(_plain(result.get("tools")))
    if "isError" in result:  # middleware looks at it
        result["isError"] = _plain(result["isError"])
    result_type = result.pop("resultType", None)
    meta = _plain(result.pop("_meta", None))
    if isinstance(meta, dict):
        meta.pop(SERVER_INFO, None)  # the proxy names itself
        if meta:
            result["_meta"] = meta
    if is_stateless(target):
        if result_type is not None:
            result["resultType"] = _plain(result_type)
        if issubclass(kind, CacheableResult):
            ttl, scope = _plain(result.get("ttlMs")), _plain(result.get("cacheScope"))
            result["ttlMs"] = ttl if type(ttl) is int and ttl >= 0 else 0
            result["cacheScope"] = scope if scope in ("public", "private") else "private"
    else:
        result.pop("ttlMs", None)
        result.pop("cacheScope", None)
    return result


def _plain(value: object) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


# ---------------------------------------------------------------- requests of the server


def client_request_params(method: str, text: bytes, source: str, target: str, identity: str) -> Any:
    """Translate the params of a request of the server; UNSET for none. Raises TooNew.

    `identity` is the elicitation id of a page, if the revision requires one.
    """
    if method == "roots/list" or not text:
        return UNSET
    kind: type[Model] = CreateMessageParams if method == "sampling/createMessage" else ElicitFormParams
    if kind is ElicitFormParams and mode_of(text) == "url":
        kind = ElicitUrlParams
    translated = translate(text, kind, source, target)
    translated.pop("_meta", None)
    if kind is ElicitUrlParams and known_in(kind, "elicitation_id", target):
        translated.setdefault("elicitationId", identity)
    return translated


def mode_of(text: bytes | Raw) -> str:
    """Return the mode of an elicitation; the default is "form"."""
    decoded = msgspec.json.decode(text or b"{}")
    mode = decoded.get("mode") if isinstance(decoded, dict) else None
    return mode if isinstance(mode, str) else "form"


def required_capabilities(method: str, params: object) -> Json:
    """Return the client capabilities that a request requires, as JSON."""
    decoded: Json = _plain(params) if isinstance(params, Raw) else params if isinstance(params, dict) else {}
    if method == "sampling/createMessage":
        return {"sampling": {"tools": {}} if decoded.get("tools") or decoded.get("toolChoice") else {}}
    if method == "elicitation/create":
        return {"elicitation": {str(_plain(decoded.get("mode", "form"))): {}}}
    return {"roots": {}}


# ---------------------------------------------------------------- params


def forwarded_meta(text: Raw) -> Json | None:
    """Return the `_meta` to forward: without the progress token and reserved keys, which belong to one connection."""
    meta = _plain(text)
    if not isinstance(meta, dict):
        return None
    forwarded = {key: value for key, value in meta.items() if key != "progressToken" and not key.startswith(RESERVED)}
    return forwarded or None


# ---------------------------------------------------------------- errors


def error_for(exc: CallError, server: str, target: str, uri: str | None = None) -> ProtocolError:
    """Return the error for the caller when a request to the upstream server, whose name is for the log, failed.

    Errors of the server keep code, message and data, if the revision has the code. Other failures become an internal error
    without addresses, which says whether the request may have run.
    """
    if isinstance(exc, PeerError):
        return _peer_error(exc, server, target, uri)
    if isinstance(exc, CallTimeout):
        text = "did not respond in time"
    elif isinstance(exc, ConnectionLost):
        text = "was lost before it responded"
    elif isinstance(exc, HttpStatus):
        text = f"refused the request with HTTP {exc.status}"
    elif isinstance(exc, InvalidResponse):
        text = "sent an invalid response"
    else:
        text = "can't be reached"
    logger.warning("The upstream server %r %s: %s", server, text, exc)
    return relayed(f"The upstream server {text}", exc.outcome)


def _peer_error(exc: PeerError, server: str, target: str, uri: str | None) -> ProtocolError:
    code, data = exc.code, exc.error.data
    names_uri = isinstance(data, dict) and "uri" in data
    if uri is not None and (code == _NOT_FOUND or (code == _INVALID_PARAMS and names_uri)):
        return ResourceNotFound(uri)  # the code depends on the era
    if code == _MISSING_CAPABILITY and isinstance(data, dict) and isinstance(data.get("requiredCapabilities"), dict):
        return MissingClientCapability(data["requiredCapabilities"])
    if code in _OUR_FAULT:
        logger.error("The upstream server %r refuses a request of the proxy: %s", server, exc)
        return InternalError("The upstream server refused the request of the proxy")
    if is_stateless(target) and code in _RESERVED_CODES:  # other codes must not be sent in this range
        return InternalError(exc.message, data)
    return ProtocolError(exc.message, data, code=code)


def required_urls(exc: CallError) -> list[Json]:
    """Return the pages that must be opened before the request is served; none for other errors."""
    data = exc.data if isinstance(exc, PeerError) and exc.code == _URLS_REQUIRED else None
    pages = data.get("elicitations") if isinstance(data, dict) else None
    return [page for page in pages if isinstance(page, dict)] if isinstance(pages, list) else []
