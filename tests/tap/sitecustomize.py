"""In every process that a test starts: writes down what Hinge sends there, for the tests to judge.

Python loads a module of this name by itself when its directory is in PYTHONPATH. It does nothing until Hinge's session is
imported, and imports nothing of Hinge itself.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def beside(name: str) -> Any:
    """A module that lies beside this file."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(os.path.dirname(__file__), f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


taps = beside("taps")
FOLDER = os.environ.get("HINGE_TEST_TAP", "")
MOST = 10_000

_written: set[int] = set()


def write(sent: Any) -> None:
    """Append it to the file of this process, once for all that are alike."""
    alike = taps.likeness(sent)
    if alike in _written or len(_written) >= MOST:
        return
    _written.add(alike)
    try:
        with open(os.path.join(FOLDER, str(os.getpid())), "ab") as file:
            file.write(json.dumps([*sent[:2], sent.data.decode(errors="replace"), sent.answers]).encode() + b"\n")
    except OSError:
        return  # the tests are over


class AtImport:
    """Begins to listen when the session has been imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """As the import system asks for it; leaves everything but the session to others."""
        if name != "hinge.session":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        loader: Any = spec.loader
        plain = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            plain(module)
            taps.listen(write)

        loader.exec_module = exec_module
        return spec


if FOLDER:
    sys.meta_path.insert(0, AtImport())
