"""The checks of variables in URIs, `ResourceSecurity(…)`, as the option `screen`."""

from __future__ import annotations

import re

import libcst as cst

from gemel.migrate import names
from gemel.migrate.arguments import CallArguments, is_name, text_of
from gemel.migrate.rewrite_state import RewriteState

_SCREENS = ("reject_path_traversal", "reject_absolute_paths", "reject_null_bytes")


def rewrite_security(state: RewriteState, original_node: cst.Call, arguments: CallArguments) -> bool:
    """Write `security=ResourceSecurity(…)` that exempts all variables as `screen=False`, and leave out one with defaults.

    Args:
        state: What the parts of the second pass share.
        original_node: The call before anything in it was rewritten.
        arguments: Its arguments, which are changed.

    Returns:
        Whether that was possible.
    """
    original = CallArguments(original_node, ("uri",))
    given, uri = original.get("security"), text_of(original.get("uri"))
    if not isinstance(given, cst.Call) or state.bindings.imported(given.func) not in names.RESOURCE_SECURITY:
        return False
    checks = CallArguments(given)
    exempt = checks.get("exempt_params")
    if is_default_security(state, given):
        arguments.pop("security")
    elif all(is_name(checks.get(check), "False") for check in _SCREENS):
        arguments.pop("security")
        arguments.set("screen", "False")
    elif checks.names() == ["exempt_params"] and isinstance(exempt, cst.Set | cst.List | cst.Tuple):
        exempted = {text_of(element.value) for element in exempt.elements}
        if uri is None or not set(re.findall(r"\w+", " ".join(re.findall(r"\{(.*?)\}", uri)))) <= exempted:
            return False
        arguments.pop("security")
        arguments.set("screen", "False")
    else:
        return False
    state.drop(given)
    return True


def is_default_security(state: RewriteState, given: cst.BaseExpression | None) -> bool:
    """Return whether this is `ResourceSecurity()`, which checks what Gemel does.

    Args:
        state: What the parts of the second pass share.
        given: The value of an option.
    """
    if not isinstance(given, cst.Call) or given.args:
        return False
    is_default = state.bindings.imported(given.func) in names.RESOURCE_SECURITY
    if is_default:
        state.drop(given)
    return is_default
