"""Objects of the protocol: content, results, messages, errors and what clients are asked."""

from __future__ import annotations

import libcst as cst

from gemel.migrate import advice, names
from gemel.migrate.arguments import CallArguments, code_of
from gemel.migrate.names import NAMES, Name
from gemel.migrate.rewrite_state import RewriteState
from gemel.schema import content
from gemel.server.features.content import Image

#: Errors of the protocol by their codes.
_ERRORS = {
    "PARSE_ERROR": "ParseError",
    "INVALID_REQUEST": "InvalidRequest",
    "METHOD_NOT_FOUND": "MethodNotFound",
    "INVALID_PARAMS": "InvalidParams",
    "INTERNAL_ERROR": "InternalError",
    "-32700": "ParseError",
    "-32600": "InvalidRequest",
    "-32601": "MethodNotFound",
    "-32602": "InvalidParams",
    "-32603": "InternalError",
}
_FIELD_KINDS = frozenset(
    {"tool", "resource", "template", "prompt", "contents", "content", "tool result", "resource result", "prompt result"}
)


class ProtocolObjects:
    """The part of the second pass that is about objects of the protocol.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings

    def attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute, owner: str | None
    ) -> cst.BaseExpression | None:
        """Return an attribute of an object of the protocol as that of Gemel; None for any other."""
        name = original_node.attr.value
        if owner == "uri template" and name == "variable_names":
            return cst.Call(cst.Name("list"), [cst.Arg(updated_node.with_changes(attr=cst.Name("names")))])
        if owner == "media" and not hasattr(Image, name):
            text = advice.MEDIA_MEMBERS.get(name, "Image, Audio and File have content(), base64 and family")
            self._state.note(original_node, f".{name}: {text}")
            return updated_node
        if name not in names.FIELDS:
            return None
        if owner in _FIELD_KINDS:
            return updated_node.with_changes(attr=cst.Name(names.FIELDS[name]))
        if owner is None and self._speaks_of_mcp(original_node):
            self._state.note(
                original_node, f".{name}: if this is an object of the protocol, it is .{names.FIELDS[name]}"
            )
        return None

    def call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression | None:
        """Note a method of media that Gemel's lack."""
        method = original_node.func.attr.value if isinstance(original_node.func, cst.Attribute) else None
        if method in ("to_image_content", "to_audio_content", "to_resource_content"):
            self._state.note(original_node, f".{method}(): of an Image, Audio or File it is .content()")
        return None

    def imported_call(
        self, original_node: cst.Call, updated_node: cst.Call, full_name: str
    ) -> cst.BaseExpression | None:
        """Return a call that makes an object of the protocol as that of Gemel; None for any other."""
        if full_name in names.PROTOCOL_ERRORS:
            return self._protocol_error(original_node, updated_node, full_name)
        if full_name in names.PROMPT_MESSAGES:
            self._state.imports.add(Name("Message"))
            arguments = CallArguments(updated_node.with_changes(func=cst.Name("Message")), ("content",))
            if names.PROMPT_MESSAGES[full_name] == "assistant":
                arguments.set("role", '"assistant"')
            return arguments.call()
        if full_name in names.TEMPLATE_PARSERS and len(updated_node.args) == 1:
            assert isinstance(updated_node.func, cst.Attribute)
            return updated_node.with_changes(func=updated_node.func.value)
        if full_name in names.INPUT_REQUESTS:
            self._state.drop(original_node.func)
            self._state.imports.add(Name("InputRequest", "gemel.schema.input_required"))
            arguments = CallArguments(updated_node.with_changes(func=cst.Name("InputRequest")))
            arguments.set("method", f'"{names.INPUT_REQUESTS[full_name]}"')
            return arguments.call()
        if full_name in names.REQUIRED_PAGES:
            return self._required_pages(original_node, updated_node)
        owner, _, short = full_name.rpartition(".")
        if short == "model_validate" and owner in NAMES and isinstance(updated_node.func, cst.Attribute):
            self._state.imports.add(Name("", "msgspec"))
            return cst.parse_expression(
                f"msgspec.convert({code_of(updated_node.args[0].value)}, {code_of(updated_node.func.value)})"
            )
        if full_name in names.TOOL_RESULTS:
            return self._tool_result(original_node, updated_node)
        if full_name in names.CACHE_HINTS:
            return self._cache_hint(updated_node)
        new = NAMES.get(full_name)
        if new is not None and (
            new.module.startswith("gemel.schema") or new.name in names.WIRE_TYPES or short != new.name
        ):
            return self._wire_type(original_node, updated_node, new)
        return None

    def _cache_hint(self, call: cst.Call) -> cst.Call:
        """Milliseconds as seconds."""
        arguments = CallArguments(call, ("ttl_ms", "scope"))
        arguments.name_all_but(0)
        ttl = arguments.get("ttl_ms")
        if ttl is not None:
            whole = isinstance(ttl, cst.Integer) and ttl.evaluated_value % 1000 == 0
            code = code_of(ttl) if isinstance(ttl, cst.Integer | cst.Name | cst.Attribute) else f"({code_of(ttl)})"
            seconds = str(ttl.evaluated_value // 1000) if whole else f"{code} / 1000"  # type: ignore[attr-defined]  # an integer
            arguments.replace("ttl_ms", cst.parse_expression(seconds))
            arguments.rename("ttl_ms", "ttl")
        return arguments.call()

    def _protocol_error(self, original_node: cst.Call, updated_node: cst.Call, full_name: str) -> cst.BaseExpression:
        """`McpError(ErrorData(code=…, message=…))` and `MCPError(code, message)` as the error of that code."""
        arguments = CallArguments(updated_node, ("code", "message", "data"))
        first = updated_node.args[0].value if len(updated_node.args) == 1 else None
        if isinstance(first, cst.Call) and code_of(first.func).rpartition(".")[2] == "ErrorData":
            arguments = CallArguments(first, ("code", "message", "data"))
        code, message, data = arguments.get("code"), arguments.get("message"), arguments.get("data")
        if code is None or message is None:
            self._state.note(original_node, f"{code_of(original_node.func)}(…): {advice.name_advice(full_name)}")
            return updated_node
        self._state.drop(original_node)
        text = code_of(code)
        name = _ERRORS.get(text.rpartition(".")[2])
        if self._state.registered and self._state.registered[-1] and "McpError" in full_name:
            # Version 1 makes a result of it that the model reads.
            self._state.imports.add(Name("ToolError"))
            return cst.parse_expression(f"ToolError({code_of(message)})")
        self._state.imports.add(Name(name or "ProtocolError"))
        more = "" if data is None else f", {code_of(data)}"
        return cst.parse_expression(
            f"{name or 'ProtocolError'}({code_of(message)}{more}{'' if name else f', code={text}'})"
        )

    def _required_pages(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """`UrlElicitationRequiredError(pages)` as the error of the protocol, -32042."""
        arguments = CallArguments(updated_node, ("elicitations", "message"))
        pages, message = arguments.pop("elicitations"), arguments.pop("message")
        if pages is None or arguments.names() or arguments.starred:
            return updated_node
        self._state.drop(original_node.func)
        self._state.imports.add(Name("ProtocolError"))
        error = CallArguments(updated_node.with_changes(func=cst.Name("ProtocolError"), args=[]))
        error.put_first(cst.Dict([cst.DictElement(cst.SimpleString('"elicitations"'), pages)]))
        error.put_first(message or '"URL elicitation required"')
        error.set("code", "-32042")
        return error.call()

    def except_handler(self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler) -> cst.ExceptHandler:
        """Return a handler of an error of the protocol, which clients catch, as that of Gemel; any other as it is."""
        caught = original_node.type
        if caught is None or self._bindings.imported(caught) not in names.PROTOCOL_ERRORS:
            return updated_node
        self._state.drop(caught)
        self._state.imports.add(Name("PeerError"))
        if original_node.name is not None:
            self._state.note(original_node, "PeerError has code, message and data itself, and no .error")
        return updated_node.with_changes(type=cst.Name("PeerError"))

    def _wire_type(self, node: cst.Call, call: cst.Call, new: Name) -> cst.Call:
        arguments = CallArguments(call)
        for name in arguments.names():
            if name in names.FIELDS:
                arguments.rename(name, names.FIELDS[name])
        arguments.rename("_meta", "meta")
        if new.name in names.FIXED_TYPE:
            arguments.pop("type")
            for name in set(arguments.names()) - set(getattr(content, new.name).__struct_fields__):
                self._state.note(node, f"{new.name}({name}=…) was left out: the protocol has no such field")
                arguments.pop(name)
        return arguments.call()

    def _tool_result(self, node: cst.Call, call: cst.Call) -> cst.Call:
        """`ToolResult("text", structured_content=…)`; Gemel's has a list of blocks."""
        arguments = CallArguments(call, ("content",))
        content = arguments.pop("content")
        if content is None:
            self._state.note(node, "CallToolResult: give content=[…], the text for clients without structured content")
        elif isinstance(content, cst.SimpleString | cst.FormattedString | cst.ConcatenatedString):
            self._state.imports.add(Name("TextContent"))
            arguments.set("content", f"[TextContent(text={code_of(content)})]")
        else:
            if not isinstance(content, cst.List):
                self._state.note(node, "CallToolResult: content= is a list of content blocks")
            arguments.set("content", content)
        return arguments.call()

    def _speaks_of_mcp(self, node: cst.Attribute) -> bool:
        return isinstance(node.value, cst.Name | cst.Attribute | cst.Subscript | cst.Call | cst.Await)
