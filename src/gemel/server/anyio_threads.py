"""Sync functions that call `anyio.from_thread`, as functions of other servers do: their thread is announced to anyio.

Nothing of anyio is imported unless the program has imported it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


def reaching_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function to be called in a thread, which finds the running event loop by `anyio.from_thread`.

    Args:
        function: What is to be called.
    """
    # `anyio.from_thread.run` finds the loop only here, or by a token that its caller passes: there is no public way.
    private: Any = sys.modules.get("anyio._core._eventloop")
    if private is None or not hasattr(private, "claim_worker_thread"):
        return function
    try:
        backend = private.get_async_backend()
    except RuntimeError:  # a loop that anyio does not know
        return function
    return functools.partial(_call, private.claim_worker_thread, backend, backend.current_token(), function)


def _call(claim: Any, backend: Any, token: object, function: Callable[..., Any], /, **arguments: object) -> Any:
    with claim(backend, token):
        return function(**arguments)
