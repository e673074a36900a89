"""What several tests of transports are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transports.certificates import make_certificate


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    return make_certificate(tmp_path_factory.mktemp("tls"))
