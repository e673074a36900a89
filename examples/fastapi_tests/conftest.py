"""A database for each test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the application use an empty database."""
    monkeypatch.setenv("LIBRARY", str(tmp_path / "library.db"))
