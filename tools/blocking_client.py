"""Writes the blocking client, `src/gemel/sync.py`, from the async one: `python -m tools.blocking_client`.

Each public method becomes one that runs the async method in the event loop of the background thread (`gemel/blocking.py`), with
the same parameters, types and docstring. A test fails when the file differs from what this writes.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gemel.client.client import Client
from gemel.client.group.group import ClientGroup
from gemel.client.tasks import ClientTasks, ToolTask

FILE = Path(__file__).resolve().parents[1] / "src" / "gemel" / "sync.py"
_HEAD = '''"""The blocking client, for code without async: scripts and notebooks, also under a running event loop.

`Client` and `ClientGroup` have the methods of those of `gemel`. Callbacks that are not async run in worker threads, so they
may block. Written by `python -m tools.blocking_client`: change `gemel.client` instead.
"""

from __future__ import annotations
'''
_EXPORTED = ("BlockingTask", "BlockingTasks", "Client", "ClientGroup", "Subscription")


class Source(NamedTuple):
    """An async class, its blocking counterpart, and what the counterpart leaves out."""

    kind: type
    name: str
    #: Its base class.
    base: str
    left_out: frozenset[str] = frozenset()


#: What extensions and adapters use, what is set up before connecting, and what `Blocking` has.
_OF_ASYNC_CLIENT = frozenset(
    {
        "add_extension",
        "add_middleware",
        "answer_inputs",
        "callbacks",
        "close",
        "connect",
        "connected",
        "copy",
        "credentials",
        "declare_extension",
        "end_progress",
        "finish_tool_result",
        "know_methods",
        "mirrors_arguments",
        "receive_progress",
        "request_pages",
        "request_raw",
        "same_credentials",
        "session",
        "use_callbacks",
    }
)
_SOURCES = (
    Source(ToolTask, "BlockingTask", "Generic[DataT]"),
    Source(ClientTasks, "BlockingTasks", "", frozenset({"start"})),
    Source(
        Client,
        "Client",
        "Blocking[AsyncClient]",
        _OF_ASYNC_CLIENT,
    ),
    Source(ClientGroup, "ClientGroup", "Blocking[AsyncClientGroup]", frozenset({"close", "connect"})),
)
#: What the blocking counterparts of classes are called.
_COUNTERPARTS = {source.kind.__name__: source.name for source in _SOURCES}
#: Names in `sync.py` of what has another name where it is defined.
_ALIASES = {"AsyncClient": "Client", "AsyncClientGroup": "ClientGroup"}
#: Texts of docstrings, and what they become without async.
_WORDS = (
    (r"\basync (with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\ban async context manager", "a context manager"),
    (r"`ToolTask`", "`BlockingTask`"),
)
#: Types of parameters that are callbacks.
_CALLBACK_TYPES = ("OnStatus", "OnProgress")


def main() -> None:
    """Write the file."""
    FILE.write_text(
        _ruff("format", _ruff("check", blocking_client(), "--quiet", "--select=I", "--fix")), encoding="utf-8"
    )


def _ruff(command: str, text: str, *options: str) -> str:
    arguments = [sys.executable, "-m", "ruff", command, *options, "--stdin-filename", str(FILE), "-"]
    return subprocess.run(arguments, input=text, capture_output=True, text=True, check=True).stdout


def blocking_client() -> str:
    """The module, before it is formatted."""
    classes = [_class(source) for source in _SOURCES]
    text = "\n\n\n".join(map(ast.unparse, classes))
    used = {node.id for one in classes for node in ast.walk(one) if isinstance(node, ast.Name)}
    imports = _imports(used - {source.name for source in _SOURCES})
    return f"{_HEAD}\n{imports}\n\n__all__ = {_EXPORTED!r}\n\n\n{text}\n"


# ---------------------------------------------------------------- classes


def _class(source: Source) -> ast.ClassDef:
    made = ast.parse(f"class {source.name}({source.base}): ...").body[0]
    assert isinstance(made, ast.ClassDef)
    nodes = _own_nodes(source.kind)
    made.body = [_docstring(inspect.getdoc(source.kind) or "", 4), _constructor(source, nodes.get("__init__"))]
    made.body += _attributes(source, nodes.get("__init__"))
    for base in reversed([base for base in source.kind.__mro__ if base.__module__.startswith("gemel.")]):
        for name in _nodes(base):
            if not name.startswith("_") and name not in source.left_out and not _has(made, name):
                made.body += _members(nodes[name])
    return made


def _own_nodes(kind: type) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The definitions of all members, each from the class nearest to the top of the hierarchy."""
    found: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    for base in reversed([base for base in kind.__mro__ if base.__module__.startswith("gemel.")]):
        found |= _nodes(base)
    return found


@cache
def _nodes(kind: type) -> Mapping[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions that a class defines; an overloaded one has several."""
    tree = _tree(kind.__module__)
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    found: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _has(made: ast.ClassDef, name: str) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in made.body)


def _constructor(source: Source, nodes: Sequence[ast.FunctionDef | ast.AsyncFunctionDef] | None) -> ast.stmt:
    if not source.base.startswith("Blocking"):
        of = source.kind.__name__ + ("[DataT]" if source.base else "")
        return ast.parse(f"def __init__(self, _async: {of}) -> None:\n    self._async = _async").body[0]
    assert nodes is not None
    node = nodes[0]
    what = "client" if source.kind is Client else "group"
    first = node.args.args[1].arg
    call = f"super().__init__(functools.partial(Async{source.kind.__name__}, {first}, **threaded(options)), {what!r})"
    return _function(node, ast.parse(call).body, node.decorator_list)


def _attributes(
    source: Source, nodes: Sequence[ast.FunctionDef | ast.AsyncFunctionDef] | None
) -> Iterator[ast.FunctionDef]:
    """Public attributes that the constructor declares with their type, as properties."""
    said = dict(re.findall(r"^    (\w+): (.*)", inspect.getdoc(source.kind) or "", re.MULTILINE))
    for node in ast.walk(nodes[0]) if nodes else ():
        match node:
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=kind) if not name.startswith("_"):
                text = f'@property\ndef {name}(self) -> {ast.unparse(kind)}:\n    """{said[name]}"""\n    return self._async.{name}'
                made = ast.parse(text).body[0]
                assert isinstance(made, ast.FunctionDef)
                yield made


# ---------------------------------------------------------------- members


def _members(nodes: Sequence[ast.FunctionDef | ast.AsyncFunctionDef]) -> Iterator[ast.FunctionDef]:
    for node in nodes:
        decorators = [one for one in node.decorator_list if ast.unparse(one) in ("property", "overload", "classmethod")]
        names = [ast.unparse(one) for one in decorators]
        if "overload" in names:
            yield _function(node, [ast.Expr(ast.Constant(...))], decorators)
            continue
        text = ast.get_docstring(node, clean=True)
        body: list[ast.stmt] = [] if text is None else [_docstring(text, 8)]
        if "classmethod" in names:
            body += [one for one in node.body[1:] if not isinstance(one, ast.ImportFrom)]  # they stand above
        elif "property" in names:
            body += [ast.Return(_converted(ast.parse(f"self._async.{node.name}", mode="eval").body, node))]
        else:
            body += _call(node, is_overloaded=len(nodes) > 1)
        yield _function(node, body, decorators)


def _call(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_overloaded: bool) -> list[ast.stmt]:
    """The body of a method: calls the async one with the same arguments."""
    arguments = [_passed(one) for one in node.args.args[1:]]
    arguments += [f"{one.arg}={_passed(one)}" for one in node.args.kwonlyargs]
    if node.args.kwarg is not None:
        arguments.append(f"**threaded({node.args.kwarg.arg})")
    method = f"self._async.{node.name}"
    lines: list[ast.stmt] = []
    if is_overloaded:  # the types of the arguments together fit no single overload
        lines += ast.parse(f"method: Any = {method}").body
        method = "method"
    call = f"{method}({', '.join(arguments)})"
    if isinstance(node, ast.AsyncFunctionDef):
        call = f"run({call})"
    if is_overloaded:
        lines += ast.parse(f"result = {call}").body
        text = "BlockingTask(result) if isinstance(result, ToolTask) else result"
        return [*lines, ast.Return(ast.parse(text, mode="eval").body)]
    value = _converted(ast.parse(call, mode="eval").body, node)
    returns_nothing = node.returns is not None and ast.unparse(node.returns) == "None"
    return [ast.Expr(value) if returns_nothing else ast.Return(value)]


def _passed(argument: ast.arg) -> str:
    kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
    return f"in_thread({argument.arg})" if any(name in kind for name in _CALLBACK_TYPES) else argument.arg


def _converted(value: ast.expr, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr:
    """What the async method returns as its blocking counterpart."""
    kind = "" if node.returns is None else ast.unparse(node.returns).partition("[")[0]
    if kind == "Subscription":
        value = ast.parse(f"lambda: {ast.unparse(value)}", mode="eval").body
        return ast.Call(ast.Name(kind), [value], [])
    return ast.Call(ast.Name(_COUNTERPARTS[kind]), [value], []) if kind in _COUNTERPARTS else value


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, body: list[ast.stmt], decorators: list[ast.expr]
) -> ast.FunctionDef:
    returns = None if node.returns is None else _Renamed().visit(ast.parse(ast.unparse(node.returns), mode="eval").body)
    made = ast.FunctionDef(node.name, node.args, body, decorators, returns)
    return ast.fix_missing_locations(made)


class _Renamed(ast.NodeTransformer):
    """Types of results by their blocking counterparts."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(_COUNTERPARTS.get(node.id, node.id))


def _docstring(text: str, indent: int) -> ast.Expr:
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    lines = [line and " " * indent + line for line in text.split("\n")]
    ending = "" if len(lines) == 1 else "\n" + " " * indent
    return ast.Expr(ast.Constant("\n".join(lines).lstrip() + ending))


# ---------------------------------------------------------------- imports


def _imports(used: set[str]) -> str:
    """The lines that import the names, from where the async classes have them."""
    homes = _homes()
    lines = {f"import {name}" for name in used if name == "functools"}
    for name in used & homes.keys():
        origin = _ALIASES.get(name, name)
        lines.add(f"from {homes[name]} import {origin}" + (f" as {name}" if origin != name else ""))
    return "\n".join(sorted({*lines, "from gemel.blocking import Subscription"}))


def _homes() -> Mapping[str, str]:
    """The modules of all names that the source uses."""
    homes: dict[str, str] = {}
    for module in {base.__module__ for source in _SOURCES for base in source.kind.__mro__}:
        if not module.startswith("gemel."):
            continue
        for node in ast.walk(_tree(module)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                homes |= {name.asname or name.name: node.module for name in node.names}
        homes |= {name: module for name in vars(sys.modules[module]) if name not in homes}
    homes |= dict.fromkeys(("Blocking", "in_thread", "run", "threaded", "Subscription"), "gemel.blocking")
    homes |= {name: homes[origin] for name, origin in _ALIASES.items()}
    return homes | dict.fromkeys(("Any", "Generic"), "typing")


if __name__ == "__main__":
    main()
