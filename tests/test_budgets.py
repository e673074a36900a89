"""The budgets of the code: lengths, parameters, nesting, and no unfinished or silenced business.

A budget is raised only with a record in docs/decisions.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source import PACKAGE, ROOT, Module, read_package

FILE_LINES = 400
BODY_LINES = 40
PARAMETERS = 8
NESTING = 4

# Places that may be over the budget, by their full name, each with the file in docs/decisions that says why.
ALLOWED: dict[str, str] = {
    "hinge.client.client.Client.__init__": "006-parameters-of-the-public-doors.md",
    "hinge.client.client.Client.request": "006-parameters-of-the-public-doors.md",
    "hinge.server.server.Server.__init__": "006-parameters-of-the-public-doors.md",
}

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# Who silences a type checker names what is silenced, and then why: `# type: ignore[code]  # reason`.
SILENCER = re.compile(r"#\s*(type|pyright):\s*ignore(?P<rest>.*)")
EXPLAINED = re.compile(r"\[[\w-]+(,\s*[\w-]+)*\]\s*(#|\(|-)\s*\w.*")
WHOLE_FILE = re.compile(r"#\s*(ruff:\s*noqa|flake8:\s*noqa|mypy:|pyright:\s*(basic|strict|standard|report\w+\s*=))")

WRITTEN_BY_US = ("src", "tests", "tools", "examples", "benchmarks")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(node: ast.AST, name: str) -> Iterator[tuple[str, Function]]:
    """Every function below `node`, with its full name; `name` is that of `node`."""
    for child in ast.iter_child_nodes(node):
        inner = f"{name}.{child.name}" if isinstance(child, Function | ast.ClassDef) else name
        if isinstance(child, Function):
            yield inner, child
        yield from functions(child, inner)


def body_lines(function: Function) -> int:
    """The lines of the body; the docstring is free, as long as it likes."""
    documented = ast.get_docstring(function) is not None
    body = function.body[documented:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def parameters(function: Function) -> int:
    """The named parameters but `self` and `cls`."""
    arguments = function.args
    named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"]))


def nesting(function: Function) -> int:
    """How deep blocks stand in blocks. An `elif` is no deeper than its `if`; a function inside starts anew."""
    return max((_depth(statement) for statement in function.body), default=0)


def _depth(node: ast.AST) -> int:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return 0
    inner = max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)
    if isinstance(node, ast.If):
        branch = max(map(_depth, node.body), default=0)
        is_elif = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        other = max(map(_depth, node.orelse), default=0) - is_elif
        return 1 + max(branch, other)
    blocks = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
    return inner + isinstance(node, blocks)


def over_budget(module: Module) -> Iterator[tuple[str, str]]:
    """Each place of a module that is over a budget: its full name, and what is to be said of it."""
    length = module.text.count("\n")
    if length > FILE_LINES:
        yield module.name, f"{module.at(1)}: {length} lines, {FILE_LINES} allowed"
    for name, function in functions(module.tree, module.name):
        place = f"{module.at(function.lineno)}: {function.name}"
        if (size := body_lines(function)) > BODY_LINES:
            yield name, f"{place} has {size} lines, {BODY_LINES} allowed"
        if (count := parameters(function)) > PARAMETERS:
            yield name, f"{place} takes {count} parameters, {PARAMETERS} allowed"
        if (depth := nesting(function)) > NESTING:
            yield name, f"{place} is nested {depth} deep, {NESTING} allowed"


def unfinished(module: Module) -> Iterator[str]:
    """Each line that says of itself that it is not done."""
    for number, line in enumerate(module.text.splitlines(), 1):
        if found := UNFINISHED.search(line):
            yield f"{module.at(number)}: {found[0]}"


def silenced(path: Path) -> Iterator[str]:
    """Each place of a file where a checker is silenced without a code and a reason, or for the whole file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        place = f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{number}"
        if WHOLE_FILE.search(line):
            yield f"{place}: a whole file is silenced"
        elif (found := SILENCER.search(line)) and not EXPLAINED.fullmatch(found["rest"].strip()):
            yield f"{place}: {found[1]}: ignore without a code and a reason"


@pytest.fixture(scope="module")
def hinge() -> list[Module]:
    modules = read_package()
    assert modules, f"no source below {PACKAGE}"
    return modules


@pytest.fixture(scope="module")
def over(hinge: list[Module]) -> list[tuple[str, str]]:
    """Each place of ours that is over a budget."""
    return [found for module in hinge for found in over_budget(module)]


def test_every_file_and_function_keeps_its_budget(over: list[tuple[str, str]]) -> None:
    unrecorded = [said for name, said in over if name not in ALLOWED]
    assert not unrecorded, "\n" + "\n".join(unrecorded)


def test_what_may_be_over_the_budget_is_so_for_a_recorded_reason(over: list[tuple[str, str]]) -> None:
    assert ALLOWED.keys() <= {name for name, _ in over}
    missing = [record for record in ALLOWED.values() if not (ROOT / "docs" / "decisions" / record).is_file()]
    assert not missing


def test_nothing_is_left_for_later(hinge: list[Module]) -> None:
    places = [place for module in hinge for place in unfinished(module)]
    assert not places, "\n" + "\n".join(places)


def test_whoever_silences_a_checker_says_which_rule_and_why() -> None:
    files = [path for directory in WRITTEN_BY_US for path in (ROOT / directory).rglob("*.py")]
    assert files
    places = [place for path in files if path != Path(__file__) for place in silenced(path)]
    assert not places, "\n" + "\n".join(places)


def module_of(text: str) -> Module:
    text = textwrap.dedent(text)
    return Module("hinge.example", Path("example.py"), text, ast.parse(text))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n" * 401, "401 lines"),
        ("def f():\n" + "    x = 1\n" * 41, "f has 41 lines"),
        ("class A:\n  async def f(self, a, b, c, d, /, e, f, g, *, h, i): ...", "f takes 9 parameters"),
        (
            """
            def f():
                for a in b:
                    with a:
                        if a: ...
                        elif b:
                            try:
                                while a: ...
                            finally: ...
            """,
            "f is nested 5 deep",
        ),
    ],
)
def test_what_is_over_budget_is_found(text: str, complaint: str) -> None:
    ((_, said),) = over_budget(module_of(text))
    assert complaint in said


def test_a_place_over_budget_has_its_full_name() -> None:
    ((name, _),) = over_budget(module_of("class A:\n  if x:\n    def f(a, b, c, d, e, f, g, h, i): ..."))
    assert name == "hinge.example.A.f"


def test_unfinished_business_is_found() -> None:
    (found,) = unfinished(module_of("x = 1\ny = 2  # FIXME: later"))
    assert found == "example.py:2: FIXME"


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n" * 400,
        'def f():\n    """' + "words\n" * 50 + '    """\n' + "    x = 1\n" * 40,
        "def f(self, a, b, c, d, e, f, g, h, *rest, **more): ...",
        "def f():\n" + "    if a: ...\n" + "    elif b: ...\n" * 9 + "    else: ...",
        "def f():\n for a in b:\n  for a in b:\n   for a in b:\n    for a in b:\n     def g():\n      if a: ...",
    ],
)
def test_what_is_within_budget_is_left_alone(text: str) -> None:
    assert not list(over_budget(module_of(text)))


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
def test_a_silencer_needs_a_code_and_a_reason(tmp_path: Path, line: str, accepted: bool) -> None:
    file = tmp_path / "example.py"
    file.write_text(line)
    assert bool(list(silenced(file))) is not accepted
