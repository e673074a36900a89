"""The load scenarios at a small scale; `make load soak` runs them at full scale."""

from __future__ import annotations

import sysconfig

import pytest

from tests.load import run
from tests.load.run import KNOWN, SCENARIOS, UNLIMITED

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(120),  # each starts a server and opens hundreds of connections
    pytest.mark.skipif(
        bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        reason="the bounds are for the allocator of Pythons with the global lock",
    ),
]


@pytest.mark.parametrize("name", SCENARIOS)
async def test_what_a_server_holds_under_load_is_bounded(name: str, request: pytest.FixtureRequest) -> None:
    if name in KNOWN:
        request.applymarker(pytest.mark.xfail(reason=KNOWN[name], strict=False))
    await SCENARIOS[name](0.04)


@pytest.mark.parametrize("name", UNLIMITED)
async def test_a_scenario_fails_without_the_limit_that_it_proves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LOOKS", 30)  # more than the limit of `slow_readers` takes
    with pytest.raises(AssertionError, match=r"at most|the server holds"):
        await SCENARIOS[name](0.04, **UNLIMITED[name])
