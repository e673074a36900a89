"""The code follows the rules of its structure; how the places are found stands in `tools/shape.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.source import Module, read_package
from tools import shape
from tools.shape import RULES


@pytest.mark.parametrize("name", RULES)
def test_the_code_follows_each_rule(name: str) -> None:
    rule = RULES[name]
    places = list(rule.find(read_package()))
    assert len(places) <= rule.allowed, f"{len(places)} {rule.title}, {rule.allowed} allowed:\n" + "\n".join(places)


def package(directory: Path, files: Mapping[str, str]) -> list[Module]:
    """A package `gemel` written for one test."""
    for name, text in files.items():
        path = directory / "gemel" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_package(directory / "gemel")


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("call.era == '2026'", 1),
        ("era is other.era", 1),
        ("revision in STATELESS_REVISIONS", 1),
        ("'2025' in names or era in ('2025', '2026')", 2),
        ("isinstance(call.era, Stateless)", 1),
        ("match era:\n  case '2025': ...\n  case '2026': ...", 2),
        ("call.era is None", 0),
        ("era == 'auto'", 0),
        ("isinstance(eras, str)", 0),
        ("call.era.admit(call)", 0),
        ("if call.era.has_sessions: ...", 1),
        ("x = 1 if not (a and era.has_sessions) else 2", 1),
        ("while era.asks(): ...", 1),
        ("if call.era.may_log(level): ...", 0),
        ("describe(era.has_sessions)", 0),
    ],
)
def test_decisions_by_era_are_counted(tmp_path: Path, code: str, count: int) -> None:
    base = (
        "class Era:\n  has_sessions: bool\n"
        "  def asks(self) -> bool: return self == '2025'\n"
        "  def may_log(self, level) -> bool: ..."
    )
    modules = package(tmp_path, {"protocol/eras/base.py": base, "server/tools.py": code})
    assert len(list(shape.era_decisions(modules))) == count


def test_a_cycle_counts_even_if_only_type_checkers_close_it(tmp_path: Path) -> None:
    files = {
        "a.py": "import gemel.b",
        "b.py": "def late():\n    import gemel.c",
        "c.py": "if TYPE_CHECKING:\n    import gemel.a",
        "d.py": "import gemel.a",
    }
    (found,) = shape.import_cycles(package(tmp_path, files))
    assert found == "3 modules import each other: gemel.a, gemel.b, gemel.c"


@pytest.mark.parametrize(
    ("code", "unset"),
    [
        ("class A:\n  def f(self): return self.x", "x"),
        ("class A:\n  x: int\n  def f(self): return self.x", "x"),
        ("class A:\n  x: int = 1\n  def f(self): return self.x", None),
        ("class A(msgspec.Struct):\n  x: int\n  def f(self): return self.x", None),
        ("@dataclass\nclass A:\n  x: int\n  def f(self): return self.x", None),
        ("class A:\n  def __init__(self): self.x = 1\nclass B(A):\n  def f(self): return self.x + self.f()", None),
        ("class A:\n  def __getattr__(self, name): ...\n  def f(self): return self.x", None),
        ("class A(dict):\n  def f(self): return self.items() or self.x", "x"),
        ("class A:\n  def f(self):\n    class B:\n      def g(self): return self.x", "x"),
        ("class A:\n  __slots__ = ('x',)\n  def f(self): return self.x", None),
        ("class A(elsewhere.B):\n  def f(self): return self.x", None),
    ],
)
def test_attributes_that_nobody_sets_are_found(tmp_path: Path, code: str, unset: str | None) -> None:
    found = list(shape.foreign_reads(package(tmp_path, {"a.py": f"import msgspec\n{code}"})))
    assert [place.rpartition(" ")[2] for place in found] == ([unset] if unset else [])


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(a): return a._x", ["a._x"]),
        ("def f(a): a.b()._y = 1", ["a.b()._y"]),
        ("def f(a): return a._z()", ["a._z"]),
        ("class C(A):\n  def f(self): return self._x, super()._z()", []),
        ("class C:\n  def __init__(self, a): self._x = a._x", []),
        ("def f(a): return a._replace(x=1), a.__class__, a._unknown", []),
        ("import os\ndef f(): os._exit(1)", []),
    ],
)
def test_private_members_that_another_module_uses_are_found(tmp_path: Path, code: str, found: list[str]) -> None:
    members = "class A:\n  _x: int = 0\n  def __init__(self): self._y = self._exit = 1\n  def _z(self): return self._replace()"
    places = list(shape.private_reaches(package(tmp_path, {"a.py": members, "b.py": code})))
    assert [place.rpartition(": ")[2] for place in places] == found


def test_two_classes_of_one_name_are_found(tmp_path: Path) -> None:
    (found,) = shape.duplicate_classes(
        package(tmp_path, {"a.py": "class A: ...\nclass B: ...", "b.py": "class A: ..."})
    )
    assert found.startswith("A: ")


@pytest.mark.parametrize("text", ["BASE-04", "(SEC-04)", "TSK-04.", "see MRTR-04, HDR-04"])
def test_an_id_is_found(tmp_path: Path, text: str) -> None:
    assert list(shape.requirement_ids(package(tmp_path, {"a.py": f"# {text}"})))


@pytest.mark.parametrize(
    "text", ["UTF-8", "UTF-16", "RFC-9110", "SHA-256", "ISO-8601", "2025-11-25", "x-TSK-10", "TSK-1"]
)
def test_what_only_looks_like_an_id_is_left_alone(tmp_path: Path, text: str) -> None:
    assert not list(shape.requirement_ids(package(tmp_path, {"a.py": f"# {text}"})))


@pytest.mark.parametrize(
    ("text", "parameters", "raises", "lacking"),
    [
        ("", [], False, ["no docstring"]),
        ("Do it.", [], False, []),
        ("Do it.", ["a"], False, ["no Args:"]),
        ("Do it.", [], True, ["no Raises:"]),
        ("Do it.\n\nArgs:\n    a: What.\n        More.\n    b (int): That.", ["a", "b"], False, []),
        ("Do it.\n\nArgs:\n    a, b: What.\n\n    c: That.", ["a", "b", "c"], False, []),
        ("Do it.\n\nArgs:\n    a: What.\n\nReturns:\n    b: no parameter.", ["a", "b"], False, ["Args: without b"]),
        ("Do it.\n\nArgs:\n    port: What.", ["**options"], False, []),
        ("Do it.\n\nRaises:\n    ValueError: If not.", [], True, []),
    ],
)
def test_what_a_docstring_lacks_is_told(text: str, parameters: list[str], raises: bool, lacking: list[str]) -> None:
    assert list(shape.lacking_sections(text, parameters, raises=raises)) == lacking


def test_lines_without_code_are_not_counted(tmp_path: Path) -> None:
    code = '"""One.\n\nTwo."""\n\nx = 1  # why\n# more\ny = """a\nb"""\ndef f():\n    """Do."""\n    return (\n        x\n    )\n'
    (module,) = package(tmp_path, {"a.py": code})
    assert shape.code_lines(module) == 7
