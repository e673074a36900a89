"""Paths within the roots of a client."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from gemel.errors import ToolError, shorten
from gemel.schema.roots import Root


def path_in_roots(path: str | os.PathLike[str], roots: Iterable[Root]) -> Path:
    """Resolve a path that must lie within a root: `path_in_roots(name, await ctx.list_roots())`.

    Symbolic links and `..` are resolved first. Roots are guidance of the client: they do not protect files from other users
    of the machine, who can change a link after this check.

    Args:
        path: The path; a relative one is looked for below each root, in their order.
        roots: The roots; those that are not `file://` URIs of this machine are ignored.

    Returns:
        The absolute path. It need not exist.

    Raises:
        ToolError: The path is not within a root.

    Specification: client/roots, "Security Considerations".
    """
    text = os.fspath(path)
    for folder in filter(None, map(_folder, roots)):
        try:
            real = Path(os.path.realpath(os.path.join(folder, text)))
        except ValueError:  # a null character
            break
        if real.is_relative_to(folder):
            return real
    raise ToolError(f"{shorten(text)!r} is not within the folders that the client shares")


def _folder(root: Root) -> str | None:
    """The folder of a root, resolved; None for a root that is not a file URI of this machine."""
    try:
        parts = urlsplit(root.uri)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            return None
        return os.path.realpath(url2pathname(parts.path))
    except ValueError:
        return None
