"""The documents run where nothing but Python is installed."""

from collections.abc import Iterator

import pytest

from tests.programs import bare_path


@pytest.fixture(scope="module", autouse=True)
def only_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A PATH of Python's environment and coreutils; what else a test uses it asks `tests.programs` for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", bare_path(tmp_path_factory.mktemp("programs")))
        yield
