"""Warnings about what a peer sends. The peer decides how many there are, so only some of them reach the log."""

from __future__ import annotations

import logging

logger = logging.getLogger("gemel")

#: Warnings about one connection, list or request; further ones have the level DEBUG.
MOST_WARNINGS = 100


def warn_about_peer(before: int, text: str, *arguments: object) -> int:
    """Log a warning.

    Args:
        before: How many there were before.
        text: The text, with `%s` for arguments.
        *arguments: The arguments.

    Returns:
        How many there are now.
    """
    count = before + 1
    if count <= MOST_WARNINGS:
        logger.warning(text, *arguments, stacklevel=2)
        if count == MOST_WARNINGS:
            logger.warning("Further warnings of this kind about the same peer are logged with the level DEBUG")
    else:
        logger.debug(text, *arguments, stacklevel=2)
    return count
