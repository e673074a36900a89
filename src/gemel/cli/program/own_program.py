"""How the command `gemel` starts itself again: installed, as a zip application, or frozen (PyInstaller)."""

from __future__ import annotations

import sys
import zipfile


def own_program() -> list[str]:
    """Return the words that start this command in another process."""
    if getattr(sys, "frozen", False):
        return [sys.executable]
    if (
        sys.argv and zipfile.is_zipfile(sys.argv[0]) and not sys.argv[0].endswith(".exe")
    ):  # pip's gemel.exe is a zip file, too
        return [sys.executable, sys.argv[0]]
    # -P: what is in the working directory is not imported in place of Python's own modules.
    return [sys.executable, "-P", "-m", "gemel"]
