"""Code mode: a model writes programs that call tools, in place of a list of all tools. See `mode.py`."""

from __future__ import annotations

from gemel.code.mode import CodeMode
from gemel.code.sandbox import ScriptLimits

__all__ = ["CodeMode", "ScriptLimits"]
