"""Whether the text of an unexpected exception of a tool reaches the model: the option `error_details`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TypeAlias

from gemel.options import Check, is_function

logger = logging.getLogger("gemel")

ErrorDetails: TypeAlias = bool | Collection[type[Exception]] | Callable[[Exception], str | None]


def _fits(value: object) -> bool:
    if isinstance(value, bool) or (is_function(value, 1, plain=True) and not isinstance(value, type)):
        return True
    if not isinstance(value, Collection) or isinstance(value, str | type):
        return False
    return all(isinstance(one, type) and issubclass(one, Exception) for one in value)


ERROR_DETAILS = Check(_fits, "use True, False, a list of exception types, or `def details(error) -> str | None`")


def error_text(details: ErrorDetails, error: BaseException) -> str | None:
    """The text of an exception, as far as the option allows it; None if the model is to get none.

    Args:
        details: The option.
        error: What a tool raised.
    """
    if not details or not isinstance(error, Exception):
        return None
    try:
        if details is not True and not isinstance(details, Collection):
            return details(error)
        return str(error) or type(error).__name__ if details is True or isinstance(error, tuple(details)) else None
    except Exception:  # of the author's function, or of the exception's own __str__
        logger.exception("The text of %s is not sent", type(error).__name__)
        return None
