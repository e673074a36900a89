"""Objects that are added to servers, `add_prompt(Prompt.from_function(f))` and the like, as functions that are registered."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from gemel.migrate.arguments import CallArguments, code_of, is_name, text_of
from gemel.migrate.bindings import Bindings

#: Methods of servers that add objects: what registers the function in Gemel, the ends of what makes the object, and its positional
#: parameters.
_FROM_FUNCTIONS = {
    "add_prompt": ("prompt", ("Prompt.from_function",), ("fn", "name", "title", "description")),
    "add_resource": ("resource", ("Resource.from_function", "FunctionResource"), ("fn", "uri", "name")),
    "add_template": ("resource", ("ResourceTemplate.from_function",), ("fn", "uri_template", "name")),
}
#: Classes of resources with fixed contents, and the argument that has these.
_CONTENTS = {"TextResource": "text", "BinaryResource": "data", "FileResource": "path"}


class AddedObject(NamedTuple):
    """The call that makes an object which is added to a server, and the full name of what is called."""

    call: cst.Call
    full_name: str


def added_object(bindings: Bindings, node: cst.Call) -> AddedObject | None:
    """Return the object of the other library in `server.add_…(Class(…))`; None for other calls.

    Args:
        bindings: What the expressions of the module refer to.
        node: The call before anything in it was rewritten.
    """
    if bindings.imported(node.func) is not None or not isinstance(node.func, cst.Attribute) or len(node.args) != 1:
        return None
    added = node.args[0].value
    if not isinstance(added, cst.Call) or bindings.kind(node.func.value) != "server":
        return None
    full_name = bindings.imported(added.func)
    return AddedObject(added, full_name) if full_name is not None else None


class Registration(NamedTuple):
    """What registers a function, with its options, and the function."""

    kind: str
    options: cst.Call
    function: cst.BaseExpression


def registration(method: str, added: cst.Call, full_name: str, *, in_loop: bool) -> Registration | None:
    """Return what registers an object that is added to a server; None if there is no function for it.

    Args:
        method: The method of the server.
        added: The call that makes the object.
        full_name: The full name of what is called.
        in_loop: Whether the call stands in a loop, whose variables a function would read too late.
    """
    if method not in _FROM_FUNCTIONS:
        return None
    kind, makers, parameters = _FROM_FUNCTIONS[method]
    class_name = full_name.rpartition(".")[2]
    is_made = full_name.endswith(tuple(f".{maker}" for maker in makers)) and not (
        method == "add_resource" and full_name.endswith("ResourceTemplate.from_function")
    )
    arguments = CallArguments(added, parameters if is_made and class_name == "from_function" else ())
    if arguments.starred:
        return None
    arguments.rename("uri_template", "uri")
    if is_made:
        function = arguments.pop("fn")
    elif method == "add_resource" and class_name in _CONTENTS and not in_loop:
        function = _reader(arguments, class_name)
    else:
        return None
    if function is None or (kind == "resource" and "uri" not in arguments):
        return None
    if kind == "resource":
        uri = arguments.get("uri")
        assert uri is not None
        if "name" not in arguments and class_name in _CONTENTS:
            arguments.set("name", uri)
        if "mime_type" not in arguments:
            arguments.set("mime_type", '"text/plain"')
        arguments.make_positional("uri")
        return Registration(kind, arguments.call(), function)
    arguments.put_first(function)
    return Registration(kind, arguments.call(), function)


def _reader(arguments: CallArguments, class_name: str) -> cst.BaseExpression | None:
    """A function that returns the contents; None if they can't be told."""
    contents = arguments.pop(_CONTENTS[class_name])
    if contents is None:
        return None
    if class_name != "FileResource":
        return cst.parse_expression(f"lambda: {code_of(contents)}")
    binary, encoding = arguments.pop("is_binary"), arguments.pop("encoding")
    mime_type = arguments.get("mime_type")
    path = f"Path({code_of(contents)})"
    if is_name(binary, "True"):
        return cst.parse_expression(f"lambda: {path}.read_bytes()")
    is_text = mime_type is None or (text_of(mime_type) or "").startswith("text/")
    if not is_text or not (binary is None or is_name(binary, "False")):
        return None
    code = code_of(encoding) if encoding is not None else '"utf-8-sig"'
    return cst.parse_expression(f"lambda: {path}.read_text(encoding={code})")
