"""Code mode for a server that a command serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemel.errors import DefinitionError, StartError
from gemel.version import install_command

if TYPE_CHECKING:
    from gemel.code.tools import ListMode
    from gemel.server.server import Server


def use_code_mode(server: Server[Any], mode: ListMode | None, trust_hints: Sequence[str] = ()) -> None:
    """Put code mode around a server, outside of all its middleware, which sees each call within.

    Args:
        server: The server, which doesn't run yet.
        mode: The mode; None for none.
        trust_hints: The servers elsewhere whose hints are believed, as globs.

    Raises:
        StartError: Scripts can't run here.
    """
    if mode is None:
        return
    from gemel.code import CodeMode
    from gemel.code.sandbox import check_sandbox

    if mode == "code":
        try:
            check_sandbox()
        except DefinitionError:
            text = f"--code needs the extra code, which --code=search does not: {install_command('code')}"
            raise StartError(text) from None
    server.add_middleware(CodeMode(mode, trust_hints=trust_hints), outermost=True)
