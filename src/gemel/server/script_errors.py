"""How a script ends by an exception: with one line if it registers something wrong, else without the frames of Gemel."""

from __future__ import annotations

import sys
from types import TracebackType

from gemel.errors import DefinitionError, describe_failure

_PACKAGE = __file__.rpartition("server")[0]


def report_briefly() -> None:
    """Print exceptions that nobody catches without the frames of Gemel, and a DefinitionError in one line with its class."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _report


def _report(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
    place = ""
    while trace is not None and not (file := trace.tb_frame.f_code.co_filename).startswith(_PACKAGE):
        place = "" if file in str(exc) else f"{file}:{trace.tb_lineno}: "
        trace = trace.tb_next
    if hasattr(sys, "ps1") or not isinstance(exc, Exception):
        sys.__excepthook__(kind, exc, exc.__traceback__)
    elif isinstance(exc, DefinitionError):
        print(f"gemel.{kind.__name__}: {place}{exc}", file=sys.stderr)
    elif trace is None:  # it did not pass through Gemel
        sys.__excepthook__(kind, exc, exc.__traceback__)
    else:
        print(describe_failure(exc), file=sys.stderr)
