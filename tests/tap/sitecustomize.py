"""In every process that a test starts: has it write down what Gemel sends there, for the tests to judge.

Python loads a module of this name by itself when its directory is in PYTHONPATH. It does nothing, and imports nothing,
until somebody imports Gemel's session.
"""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


class AtImport:
    """Begins to listen when the session has been imported."""

    @staticmethod
    def find_spec(name: str, path: object, target: object = None) -> "ModuleSpec | None":
        """As the import system asks for it; leaves everything but the session to others."""
        if name != "gemel.session":
            return None
        sys.meta_path.remove(AtImport)
        import importlib.util

        beside = os.path.join(os.path.dirname(__file__), "taps.py")
        tap, session = importlib.util.spec_from_file_location("taps", beside), importlib.util.find_spec(name)
        assert tap is not None
        assert tap.loader is not None
        taps = importlib.util.module_from_spec(tap)
        tap.loader.exec_module(taps)
        taps.listen_after(session, os.environ["GEMEL_TEST_TAP"])
        return session


if "GEMEL_TEST_TAP" in os.environ:
    sys.meta_path.insert(0, AtImport)
