"""Keyword arguments of methods of contexts and clients by the names that they have in Gemel."""

from __future__ import annotations

import libcst as cst

from gemel.migrate import advice
from gemel.migrate.arguments import CallArguments
from gemel.migrate.rewrite_state import RewriteState


def rename_keywords(state: RewriteState, node: cst.Call, arguments: CallArguments, method: str) -> None:
    """Give the keywords of a method Gemel's names, and note those without a counterpart.

    Args:
        state: What the parts of the second pass share.
        node: The call before anything in it was rewritten.
        arguments: Its arguments, which are changed.
        method: The method as the notes call it, such as `ctx.sample`.
    """
    for old, new in advice.RENAMED_KEYWORDS.get(method, {}).items():
        arguments.rename(old, new)
    for name, text in advice.KEYWORD_ADVICE.get(method, {}).items():
        if name not in arguments:
            continue
        left_out = name in advice.LEFT_OUT_KEYWORDS
        if left_out:
            arguments.pop(name)
        state.note(node, f"{method}({name}=…){' was left out' if left_out else ''}: {text}")
