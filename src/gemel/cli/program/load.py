"""Load the server that a file or module defines."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, get_origin

from gemel.client.targets import check_script
from gemel.errors import GemelError, StartError
from gemel.options import near_file, similar
from gemel.server.run import loading
from gemel.server.server import Server
from gemel.standard_streams import moved_aside

#: The names that are tried first if none is given.
_USUAL_NAMES = ("server", "mcp", "app")


def split_target(target: str) -> tuple[str, str]:
    """Split `FILE[:NAME]` or `MODULE[:NAME]`; without a name it is empty."""
    drive = target[:2] if target[1:3] == ":\\" else ""
    place, _, name = target.removeprefix(drive).partition(":")
    return drive + place, name


def load(target: str, *, is_module: bool = False) -> Server[Any]:
    """Return the server of `FILE[:NAME]` or `MODULE[:NAME]`; NAME may be a function that returns one.

    Args:
        target: The file or module, and the name.
        is_module: Whether it is a module, even if there is a file of that name.

    Raises:
        StartError: There is none, or there are several.
    """
    place, name = split_target(target)
    module = _module(place, is_module=is_module)
    if name:
        attribute = getattr(module, name, None)
        if inspect.isroutine(attribute):
            return _make(attribute, f"{place}:{name}")
        if not isinstance(attribute, Server):
            raise StartError(f"{place} has no server named {name!r}: {_meant(module, name) or _list_servers(module)}")
        return attribute
    servers = _own_servers(module)
    for usual in _USUAL_NAMES:
        if usual in servers:
            return servers[usual]
    if not servers:
        raise StartError(f"{place} has no gemel.Server at its top level; {_suggest(module, place)}")
    if len(set(map(id, servers.values()))) != 1:
        raise StartError(f"{place} has several servers: {_list_servers(module)}; choose one with {place}:NAME")
    return next(iter(servers.values()))


@contextmanager
def _importing() -> Iterator[None]:
    """While code of the user runs at import: it does not serve, and what it prints goes to standard error."""
    with loading(), moved_aside(output_only=True):
        yield


def _own_servers(module: ModuleType) -> dict[str, Server[Any]]:
    """The servers by name: those defined here rather than imported ones, and those that are not mounted in another."""
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    imported = {
        id(value)
        for name, other in list(sys.modules.items())
        if other is not module and not name.startswith("gemel.")
        for value in list(getattr(other, "__dict__", {}).values())
        if isinstance(value, Server)
    }
    own = {key: value for key, value in servers.items() if id(value) not in imported} or servers
    return {key: value for key, value in own.items() if not value.catalog.mounted} or own


def _make(factory: Callable[[], Any], place: str) -> Server[Any]:
    """Call a factory, which may be async. Raises StartError if it takes arguments or doesn't return a server."""
    try:
        inspect.signature(factory).bind()
    except TypeError as exc:
        raise StartError(f"{place} can't be called without arguments: {exc}") from exc
    with _importing():
        try:
            made = factory()
            if inspect.iscoroutine(made):
                made = asyncio.run(made)
        except StartError:
            raise
        except GemelError as exc:
            raise StartError(f"{place}: {exc}") from exc
    if not isinstance(made, Server):
        raise StartError(f"{place}() returned {type(made).__name__}, not a gemel.Server")
    return made


def _meant(module: ModuleType, name: str) -> str:
    """The server or function of a module whose name is most similar."""
    names = [key for key, value in vars(module).items() if isinstance(value, Server) or inspect.isfunction(value)]
    near = similar(name, names)
    return f"did you mean {near!r}?" if near else ""


def _list_servers(module: ModuleType) -> str:
    names = [key for key, value in vars(module).items() if isinstance(value, Server)]
    names += _factories(module)
    return f"it has {', '.join(names)}" if names else "it has no gemel.Server at the top level"


def _suggest(module: ModuleType, place: str) -> str:
    """Say how a server is reached that does not stand at the top level of a module."""
    factories = [f"{place}:{name}" for name in _factories(module)]
    if factories:
        return f"a function returns one: use {' or '.join(factories)}"
    foreign = f"a server of another library is reached by its command line, 'python {place}'"
    return f"a function that returns one is named as {place}:FUNCTION; {foreign}"


def _factories(module: ModuleType) -> list[str]:
    """Name the functions of a module that say by their annotation that they return a server."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and _returns_server(value)
    ]


def _returns_server(function: FunctionType) -> bool:
    annotation = function.__annotations__.get("return")
    if isinstance(annotation, str):
        return re.fullmatch(r"(\w+\.)*Server(\[.*\])?", annotation) is not None
    return annotation is Server or get_origin(annotation) is Server


def _module(place: str, *, is_module: bool) -> ModuleType:
    path = Path(place)
    with _importing():
        try:
            if not is_module and (path.suffix == ".py" or path.is_file()):
                return _file(path)
            sys.path.insert(0, "")
            return importlib.import_module(place)
        except ModuleNotFoundError as exc:
            if exc.name == place:
                raise StartError(f"No such file or module: {place!r}") from exc
            frames = _users_frames(exc)
            if len(frames) > 1:  # the file itself does not import it
                sys.stderr.write("".join(frames))
            raise StartError(f"{place} can't be imported: {exc}") from exc
        except StartError:
            raise
        except GemelError as exc:
            raise StartError(f"{place}: {exc}") from exc
        except Exception as exc:
            *where, reason = _description(exc)  # of a syntax error, the line
            sys.stderr.write("".join([*_users_frames(exc), *where]))
            hint = _NO_PACKAGE if "no known parent package" in reason else ""
            raise StartError(f"{place} can't be imported: {reason.strip()}{hint}") from exc


#: What to do about a relative import in a file beside which there is no `__init__.py`.
_NO_PACKAGE = "; add an empty __init__.py to its folder, or name the module: gemel run -m PACKAGE.MODULE"


def _users_frames(exc: Exception) -> list[str]:
    """Return where an exception passed through files of the user."""
    import traceback

    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if _is_users(frame.filename)]
    return traceback.format_list(frames)


def _description(exc: Exception) -> list[str]:
    import traceback

    return traceback.format_exception_only(exc)


def _is_users(filename: str) -> bool:
    """Whether a file is the user's: not of Gemel, Python or an installed package."""
    ours = str(Path(__file__).parents[2])
    return not filename.startswith(("<", ours, sys.base_prefix, sys.prefix))


def package_folder(path: Path) -> Path:
    """Return the folder from which Python imports a file: above the packages that it is in (folders with `__init__.py`).

    Args:
        path: The file.
    """
    folder = path.resolve().parent
    while folder.name.isidentifier() and (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _file(path: Path) -> ModuleType:
    """Import a file under the name that it has for other modules of its package. Raises StartError."""
    if not path.is_file():
        raise StartError(f"No such file: {path}{near_file(str(path))}")
    if path.name == "gemel.py":
        check_script(path)
    folder, place = package_folder(path), path.resolve()
    packages = list(place.parent.relative_to(folder).parts)
    sys.path.insert(0, str(folder))
    if packages:
        # Scripts import what is beside them. Last, since a module of a package may be called like one of Python's.
        sys.path.append(str(place.parent))
    own = packages.pop() if packages and place.stem == "__init__" else place.stem.replace(".", "_")
    if not packages:
        return _execute(own, path)
    package = importlib.import_module(".".join(packages))
    name = f"{package.__name__}.{own}"
    if str(folder.joinpath(*packages)) not in map(os.path.realpath, package.__path__):
        raise StartError(
            f"{path} is in the package {package.__name__!r}, but another package has this name: {package.__file__}; rename "
            "the folder"
        )
    if _is_file_of(sys.modules.get(name), place):  # the package imports it itself
        return sys.modules[name]
    module = _execute(name, path)
    setattr(package, own, module)
    return module


def _is_file_of(module: ModuleType | None, place: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and os.path.realpath(file) == str(place)


def _execute(name: str, path: Path) -> ModuleType:
    loader = _SourceLoader(name, str(path)) if path.suffix == ".py" else None
    inner = [str(path.resolve().parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader, submodule_search_locations=inner)
    if spec is None or spec.loader is None:
        raise StartError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _SourceLoader(SourceFileLoader):
    """Ignores cached bytecode: it is compared by time in seconds and size, which an edit may not change."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)
