"""The options of `python -m tests.interop.run` that choose cells."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.interop import peers, run
from tests.interop.judge import Cell
from tests.interop.run import select

MATRIX: Any = SimpleNamespace(servers={"ours": SimpleNamespace(is_ours=True), "theirs": SimpleNamespace(is_ours=False)})
CELLS = [
    Cell(client, server, transport, "2025")
    for client in ("gemel", "python", "mcp-1.2")
    for server in MATRIX.servers
    for transport in ("stdio", "http")
]


@pytest.mark.parametrize(
    ("options", "count", "unmatched"),
    [
        ({}, 8, []),
        ({"proof": True}, 4, []),
        ({"short": True}, 6, []),
        ({"client": ["gemel"], "transport": ["stdio"]}, 2, []),
        ({"client": ["g*", "pyhton"]}, 4, ["--client pyhton"]),
        ({"server": ["theirs"], "proof": True, "client": ["gemel"]}, 0, ["--client gemel", "--server theirs"]),
    ],
)
def test_each_value_must_match_a_cell(options: Any, count: int, unmatched: list[str]) -> None:
    chosen = Namespace(
        **{"proof": False, "short": False, "client": None, "server": None, "transport": None, "era": None, **options}
    )
    cells, missing = select(CELLS, MATRIX, chosen)
    assert (len(cells), missing) == (count, unmatched)


def test_a_filter_that_matches_nothing_is_refused_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "CACHE", tmp_path)
    monkeypatch.setattr(run, "install", lambda groups: pytest.fail("peers were installed"))
    monkeypatch.setattr("sys.argv", ["run", "--client", "nobody", "--keep", str(tmp_path)])
    assert run.main() == 1
    assert capsys.readouterr().out == "interop: FAILED: no cell matches --client nobody\n"
