"""One module: both passes, its imports, and what is left to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider

from gemel.migrate import advice, names
from gemel.migrate.answers import AnswersPass
from gemel.migrate.arguments import code_of
from gemel.migrate.bindings import Bindings, Program, dotted
from gemel.migrate.imports import add_code, add_imports, local_name, remove_imports, statements_of
from gemel.migrate.low_level import LowLevelPass
from gemel.migrate.names import Name
from gemel.migrate.rewrite import RewritePass
from gemel.migrate.rounds import RoundsPass
from gemel.migrate.serving import ServingPass, speaks_of_serving
from gemel.migrate.structure import StructurePass
from gemel.migrate.written import Written, written_out


class Note(NamedTuple):
    """Something that is left to do by hand: the line in the original file, and what to do."""

    line: int
    text: str


class Migration(NamedTuple):
    """The new source of a module, the same as the old one if there was nothing to rewrite, and what is left to do."""

    source: str
    notes: tuple[Note, ...]
    #: Whether the module has servers of its own or of others, and its functions without parameters that return one.
    serves: bool = False
    factories: tuple[str, ...] = ()
    #: Whether the module makes a server anywhere, and its functions without parameters that run one.
    makes: bool = False
    runners: tuple[str, ...] = ()
    #: What the servers do as the other library does, other than Gemel by default.
    kept: tuple[str, ...] = ()
    #: Whether the module can't be rewritten, so that the modules around it stay as they are, too.
    refused: bool = False


_FOREIGN = re.compile(rf"^\s*(?:from|import)\s+(?:{'|'.join(names.PACKAGES)})\b", re.MULTILINE)
_LOW_LEVEL = re.compile(r"^\s*from\s+mcp\.server(?:\.lowlevel(?:\.server)?)?\s+import\s+.*\bServer\b", re.MULTILINE)
_SERVERS = ("server", "low-level server")


def migrate_source(source: str) -> Migration:
    """Rewrite a module that uses FastMCP 2 to 4 or the official SDK into one that uses Gemel.

    What is not known for certain stays as it is and is listed in the notes. A module that imports neither package is returned
    unchanged, and so is a result of this function.

    Args:
        source: The text of the module.

    Returns:
        The new text and the notes, ordered by line.

    Raises:
        libcst.ParserSyntaxError: The source is not Python.
    """
    path = Path("module.py")
    result = migrate_sources({path: source})[path]
    if isinstance(result, cst.ParserSyntaxError):
        raise result
    return result


def migrate_sources(sources: Mapping[Path, str]) -> dict[Path, Migration | cst.ParserSyntaxError]:
    """Rewrite modules that belong together: servers, contexts and clients are followed from one to the other.

    Args:
        sources: The text of each file.

    Returns:
        The result for each file, as of `migrate_source`, or the error for one that is not Python.
    """
    program = Program(sources, _FOREIGN.search)
    results: dict[Path, Migration | cst.ParserSyntaxError] = {}
    for path, source in sources.items():
        if path in program.wrappers:
            results[path] = _migrate(source, path, program)
        else:
            results[path] = program.errors.get(path) or Migration(source, ())
    refused = {path for path, result in results.items() if isinstance(result, Migration) and result.refused}
    for path in program.sources.connected(refused, program.wrappers):
        result = results[path]
        if path not in refused and isinstance(result, Migration) and result.source != sources[path]:
            note = Note(1, "this file stays as it is, with the program that it belongs to")
            results[path] = Migration(sources[path], (note,))
    return results


def _migrate(source: str, path: Path, program: Program) -> Migration:
    first = program.wrappers[path]
    bindings = program.module(path)
    assert bindings is not None
    lines = {node: place.start.line for node, place in first.resolve(PositionProvider).items()}
    members = bindings.members()
    serves = any(kind in _SERVERS for kind in members.values())
    factories = [name for name, kind in members.items() if kind in ("gives server", "gives low-level server")]
    factories = [name for name in factories if name in bindings.functions and _takes_nothing(bindings.functions[name])]
    makes = bindings.makes_servers
    runners = tuple(name for name in bindings.runners if _takes_nothing(bindings.functions[name]))
    low_level_notes: list[Note] = []
    imports: set[Name] = set()
    dropped: set[str] = set()
    if _LOW_LEVEL.search(source):
        low_level = LowLevelPass(bindings, first.module)
        if low_level.refused is not None:
            node, text = low_level.refused
            note = Note(lines.get(node, 1), f"{text}; the program stays as it is, see {advice.SDK_GUIDE}")
            return Migration(source, (note,), refused=True)
        low_level_notes = [Note(lines.get(node, 1), text) for node, text in low_level.left(first.module)]
        imports = low_level.imports
        module = remove_imports(first.module.visit(low_level), low_level.dropped)
        first = MetadataWrapper(module, unsafe_skip_copy=True)
    if speaks_of_serving(source):
        serving = ServingPass(Bindings(first, lines, program, path, low_level="server"), first.module)
        first = MetadataWrapper(first.module.visit(serving), unsafe_skip_copy=True)
        imports, dropped = imports | serving.imports, serving.dropped
    structure = StructurePass(Bindings(first, program=program, path=path))
    module = first.module.visit(structure)
    if "elicit" in source.casefold():
        answers = AnswersPass(
            Bindings(MetadataWrapper(module, unsafe_skip_copy=True), program=program, path=path), module
        )
        module = module.visit(answers)
        structure.imports |= answers.imports
        structure.dropped |= answers.dropped
    asking: list[Written] = []
    asking_notes: list[tuple[int, str]] = []
    if "input_responses" in source:
        asked = MetadataWrapper(module, unsafe_skip_copy=True)
        rounds = RoundsPass(Bindings(asked, lines, program, path), module)
        module = module.visit(rounds)
        asking, asking_notes = rounds.written, rounds.notes
    second = MetadataWrapper(module, unsafe_skip_copy=True)
    rewrite = RewritePass(Bindings(second, lines, program, path, low_level="server"))
    module = second.module.visit(rewrite)
    state = rewrite.state
    written = [*written_out(state.written), *asking, *state.written_for_calls]
    imports |= {name for one in written for name in one.imports}
    module = remove_imports(module, state.dropped | structure.dropped | dropped)
    module = add_imports(module, state.imports | structure.imports | imports)
    module = add_code(module, [one.code for one in written])
    notes = [*low_level_notes, *(Note(*note) for note in state.notes)]
    notes += [Note(*note) for note in asking_notes]
    notes += _left_imports(module, source)
    return Migration(
        module.code,
        tuple(sorted(set(notes))),
        serves or bool(factories),
        tuple(factories),
        makes,
        runners,
        tuple(sorted(state.kept)),
    )


def _takes_nothing(function: cst.FunctionDef) -> bool:
    """Whether a function can be called without arguments."""
    parameters = function.params
    return all(
        parameter.default is not None
        for parameter in (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params)
    )


def _left_imports(module: cst.Module, source: str) -> Iterable[Note]:
    """A note for each import of the foreign packages that is still there."""
    lines = source.splitlines()
    for statement in statements_of(module):
        text = code_of(statement).strip()
        line = next((number for number, text_line in enumerate(lines, 1) if _names_in(statement, text_line)), 1)
        if isinstance(statement, cst.ImportFrom):
            home = code_of(statement.module) if statement.module is not None else ""
            if isinstance(statement.names, cst.ImportStar):
                continue
            for alias in statement.names:
                name = f"{home}.{code_of(alias.name)}"
                yield Note(line, f"`{name}`: {advice.name_advice(name)}")
        else:
            used = list(_used_through(module, statement))
            for local, full in used:
                first = next((number for number, found in enumerate(lines, 1) if local in found), line)
                yield Note(first, f"`{full}`: {advice.name_advice(full)}")
            if not used:
                yield Note(line, f"`{text}`: {advice.name_advice(code_of(statement.names[0].name))}")


class _Used(NamedTuple):
    """A name of an imported module as the program writes it, and its full name."""

    local: str
    full: str


def _used_through(module: cst.Module, statement: cst.Import) -> Iterable[_Used]:
    """The names of the modules of an import that a program uses, each once."""
    modules = {local_name(alias): code_of(alias.name) for alias in statement.names}
    found: dict[str, _Used] = {}
    for node in m.findall(module, m.Attribute()):
        text = dotted(node)
        for local, full in modules.items():
            if text is not None and text.startswith(f"{local}."):
                # `import mcp.types` makes the name `mcp`
                found[text] = _Used(text, text if full.startswith(f"{local}.") else f"{full}{text[len(local) :]}")
    return [name for text, name in found.items() if not any(other.startswith(f"{text}.") for other in found)]


def _names_in(statement: cst.ImportFrom | cst.Import, line: str) -> bool:
    """Whether a line of the original begins with this import."""
    if isinstance(statement, cst.ImportFrom):
        home = code_of(statement.module) if statement.module is not None else ""
        return line.lstrip().startswith(f"from {home} import")
    return line.lstrip().startswith(f"import {code_of(statement.names[0].name)}")
