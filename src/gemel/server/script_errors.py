"""How a script ends that registers something wrong: with the one line that says so, without a traceback above it."""

from __future__ import annotations

import sys
from types import TracebackType

from gemel.errors import DefinitionError


def report_in_one_line() -> None:
    """Let a script that registers something wrong end with the one line that says so, without a traceback above it."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _report


def _report(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(exc, DefinitionError) or hasattr(sys, "ps1"):
        sys.__excepthook__(kind, exc, trace)
        return
    place, package = "", __file__.rpartition("server")[0]
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(package):
        file = trace.tb_frame.f_code.co_filename
        place = "" if file in str(exc) else f"{file}:{trace.tb_lineno}: "
        trace = trace.tb_next
    print(f"gemel: {place}{exc}", file=sys.stderr)
