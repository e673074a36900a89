"""No source says of itself that it is unfinished, and every silenced checker has a reason beside it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source import ROOT, read_package

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# A comment that silences a type checker names the rule and then the reason: `# type: ignore[code]  # reason`.
SILENCER = re.compile(r"#\s*(type|pyright):\s*ignore(?P<rest>.*)")
EXPLAINED = re.compile(r"\[[\w-]+(,\s*[\w-]+)*\]\s*(#|\(|-)\s*\w.*")
WHOLE_FILE = re.compile(
    r"#\s*(ruff:\s*noqa|flake8:\s*noqa|mypy:|pyright:\s*(basic|strict|standard|report\w+\s*=\s*(?!true)))"
)

WRITTEN_BY_US = ("src", "tests", "tools", "examples", "benchmarks")


def silenced(path: Path) -> Iterator[str]:
    """Each line of a file that silences a checker without a rule and a reason, or for the whole file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        place = f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{number}"
        if WHOLE_FILE.search(line):
            yield f"{place}: silences a checker for the whole file"
        elif (found := SILENCER.search(line)) and not EXPLAINED.fullmatch(found["rest"].strip()):
            yield f"{place}: {found[1]}: ignore without a rule and a reason"


def test_nothing_is_marked_as_unfinished() -> None:
    places = [
        f"{module.at(number)}: {found[0]}"
        for module in read_package()
        for number, line in enumerate(module.text.splitlines(), 1)
        if (found := UNFINISHED.search(line))
    ]
    assert not places, "\n" + "\n".join(places)


def test_a_silenced_checker_has_a_rule_and_a_reason() -> None:
    files = [path for directory in WRITTEN_BY_US for path in (ROOT / directory).rglob("*.py")]
    places = [place for path in files if path != Path(__file__) for place in silenced(path)]
    assert not places, "\n" + "\n".join(places)


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ("x = y  # type: ignore", False),
        ("x = y  # type: ignore[arg-type]", False),
        ("x = y  # type: ignore[arg-type]  # the stub lacks it", True),
        ("x = y  # type: ignore[arg-type, misc]  # the stub lacks it", True),
        ("x = y  # pyright: ignore", False),
        ("x = y  # pyright: ignore[reportX]  # the stub lacks it", True),
        ("x = y  # type: ignore[misc] (the stub lacks it)", True),
        ("# ruff: noqa: E501", False),
        ("# mypy: ignore-errors", False),
        ("# pyright: basic", False),
    ],
)
def test_a_silencer_needs_a_rule_and_a_reason(tmp_path: Path, line: str, accepted: bool) -> None:
    file = tmp_path / "example.py"
    file.write_text(line)
    assert bool(list(silenced(file))) is not accepted
