"""Imports or runs a program and lists its servers; a script for the interpreter that has the program's packages, not Gemel's own.

python probe.py JOB RESULT: JOB is the JSON of a job, RESULT the file that gets the JSON of what was found. The program is read from
the sources in the job where it has them, so that a file on the disk can have another version. A server that is run is listed
instead.
"""

import asyncio
import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import traceback
import types
from collections.abc import AsyncIterator
from typing import Any

#: The classes of servers, each with the function below that lists it. A subclass is of the first class that fits.
SERVERS = (
    ("gemel", "Server", "_list_gemel"),
    ("fastmcp", "FastMCP", "_list_fastmcp"),
    ("mcp.server.fastmcp", "FastMCP", "_list_sdk"),
    ("mcp.server.mcpserver", "MCPServer", "_list_sdk"),
    ("mcp.server.lowlevel", "Server", "_list_sdk"),
)
#: What serves: a program that does so is stopped there. The low-level server is stopped if it reads from `stdio_server`.
RUNS = ("run", "run_async", "run_stdio_async", "run_http_async", "run_sse_async", "run_streamable_http_async")
LOW_LEVEL = "mcp.server.lowlevel"


class _Serves(BaseException):
    """Ends a program that runs its server; the server is None if the program gave an app to uvicorn."""

    def __init__(self, server: Any) -> None:
        self.server = server


#: The servers that the program ran, even if it caught the exception.
_ran: list[Any] = []
#: What `stdio_server` gave to read from.
_inputs: list[Any] = []


def main() -> None:
    """Do one job, and end without waiting for threads of the program."""
    job, result = sys.argv[1:]
    sys.path.pop(0)  # the folder of this script
    sys.argv = [""]
    with open(job, encoding="utf-8") as file:
        given = json.load(file)
    found = _probe(given)
    with open(result, "w", encoding="utf-8") as file:
        json.dump(found, file, default=str)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _probe(job: dict[str, Any]) -> dict[str, Any]:
    sources = {os.path.realpath(path): text for path, text in job["sources"].items()}
    _read_from(sources)
    sys.path[:0] = job["folders"]
    sys.dont_write_bytecode = True
    classes = list(_classes(job["packages"]))
    kinds = tuple(kind for kind, _ in classes)
    servers: dict[int, tuple[str, Any]] = {}
    skipped: list[dict[str, Any]] = []
    try:
        with _stopping(kinds):
            found = _run(job["run"], kinds) if job["run"] else _servers(job["modules"], kinds, sources, skipped)
            for label, value in found:
                servers.setdefault(id(value), (label, value))
    except BaseException as exc:
        return {"failure": _failure(exc, sources)}
    lists = {}
    for label, value in servers.values():
        lister = next(lister for kind, lister in classes if isinstance(value, kind))
        try:
            lists[label] = asyncio.run(asyncio.wait_for(globals()[lister](value), job["seconds"]))
        except BaseException as exc:
            lists[label] = {"failure": _failure(exc, sources)}
    return {"servers": lists, "skipped": skipped}


def _servers(
    modules: list[dict[str, Any]], kinds: tuple[type, ...], sources: dict[str, str], skipped: list[dict[str, Any]]
) -> Any:
    """Import the modules, and yield each server with its name; a module that needs a missing package is skipped, if not all do."""
    served: list[Any] = []
    loaded = []
    for module in modules:
        try:
            loaded.append(_load(module["name"], module["path"]))
        except BaseException as exc:
            serving = _serving(exc)
            if serving is not None:
                served.append(serving.server)
                loaded.append(sys.modules.get(module["name"]))
                continue
            if not isinstance(exc, ModuleNotFoundError) or len(skipped) == len(modules) - 1:
                raise
            skipped.append(_failure(exc, sources))
            loaded.append(None)
    for module, found in zip(modules, loaded, strict=True):
        if found is not None:
            yield from _values(found, kinds, sources)
            for name in module["factories"]:
                try:
                    value = _made(found, name)
                except BaseException as exc:
                    serving = _serving(exc)
                    if serving is None:
                        raise
                    value = serving.server
                if isinstance(value, kinds):
                    yield f"{name}()", value
    for value in served:
        yield "run()", value


def _run(entry: dict[str, Any], kinds: tuple[type, ...]) -> Any:
    """Run the program as its user does, without arguments, and yield the server that it runs."""
    sys.argv = [entry["name"]]
    try:
        if entry["function"]:
            value = _made(_load(entry["module"], entry["path"]), entry["function"])
            if isinstance(value, kinds):
                yield "run()", value
        else:
            _run_as_main(entry)
    except BaseException as exc:
        serving = _serving(exc)
        if serving is None and not _ran:
            raise
        if serving is not None and serving.server is None:
            yield from (("run()", value) for value in _only_server(kinds))
    yield from (("run()", value) for value in _ran[:1])


def _run_as_main(entry: dict[str, Any]) -> None:
    """Execute a file as `python -m` does."""
    spec: Any = importlib.util.spec_from_file_location(entry["module"], entry["path"])
    if spec.parent:
        importlib.import_module(spec.parent)
    module: Any = types.ModuleType("__main__")
    module.__file__, module.__package__, module.__spec__ = entry["path"], spec.parent, spec
    sys.modules["__main__"] = module
    exec(spec.loader.get_code(entry["module"]), vars(module))


def _only_server(kinds: tuple[type, ...]) -> Any:
    """The server that the program made, if it made one; that of a FastMCP has another one inside."""
    made = [value for value in gc.get_objects() if issubclass(type(value), kinds)]
    outer = [value for value in made if not _is_low_level(type(value))] or made
    return outer if len(outer) == 1 else []


def _read_from(sources: dict[str, str]) -> None:
    """Let the import read these sources in place of the files."""
    loader: Any = importlib.machinery.SourceFileLoader
    read = loader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        text = sources.get(os.path.realpath(self.path))
        return read(self, fullname) if text is None else compile(text, self.path, "exec", dont_inherit=True)

    loader.get_code = get_code


def _classes(packages: list[str]) -> Any:
    """The classes of servers that are installed, of the packages that the program uses; none of them serves any more."""
    for home, name, lister in SERVERS:
        if home.partition(".")[0] not in packages:
            continue
        try:
            kind = getattr(importlib.import_module(home), name)
        except Exception:  # another version, or the program's import will say what is wrong
            continue
        yield kind, lister


@contextlib.contextmanager
def _stopping(kinds: tuple[Any, ...]) -> Any:
    """Let no server serve meanwhile, nor uvicorn."""
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            if kind.__module__.startswith(LOW_LEVEL):
                stack.enter_context(_replaced(kind, "run", _stopping_at_input(vars(kind)["run"])))
                with contextlib.suppress(ImportError):
                    stack.enter_context(
                        _replaced(importlib.import_module("mcp.server.stdio"), "stdio_server", _empty_stdio)
                    )
            else:
                for run in RUNS:
                    if run in vars(kind):
                        stack.enter_context(_replaced(kind, run, _stop))
        with contextlib.suppress(ImportError):
            uvicorn = importlib.import_module("uvicorn")
            for home, name in ((uvicorn, "run"), (uvicorn.Server, "run"), (uvicorn.Server, "serve")):
                stack.enter_context(_replaced(home, name, _stop_app))
        yield


@contextlib.contextmanager
def _replaced(home: object, name: str, value: object) -> Any:
    before = vars(home)[name]
    setattr(home, name, value)
    yield
    setattr(home, name, before)


def _stop(server: object, *_: object, **__: object) -> None:
    _ran.append(server)
    raise _Serves(server)


def _stop_app(*_: object, **__: object) -> None:
    raise _Serves(None)


def _stopping_at_input(run: Any) -> Any:
    """The method `run` of a low-level server, which programs also give the streams of a client in the same process."""

    def stopping(server: Any, read: Any, *arguments: Any, **keywords: Any) -> Any:
        if any(read is one for one in _inputs):
            _stop(server)
        return run(server, read, *arguments, **keywords)

    return stopping


@contextlib.asynccontextmanager
async def _empty_stdio(*_: object, **__: object) -> AsyncIterator[Any]:
    """In place of `stdio_server`: streams whose input has ended."""
    import anyio

    send, read = anyio.create_memory_object_stream[Any](0)
    write, receive = anyio.create_memory_object_stream[Any](0)
    async with send, read, write, receive:
        await send.aclose()
        _inputs.append(read)
        yield read, write


def _is_low_level(kind: type) -> bool:
    return any(base.__module__.startswith(LOW_LEVEL) for base in kind.__mro__)


def _serving(exc: BaseException) -> "_Serves | None":
    """What ended the import, if a server was run, be it in a task group."""
    if isinstance(exc, BaseExceptionGroup):
        return next((found for inner in exc.exceptions if (found := _serving(inner)) is not None), None)
    return exc if isinstance(exc, _Serves) else None


def _load(name: str, path: str) -> Any:
    """Import a module by its name, or by its path if the name is not one that can be imported."""
    if all(part.isidentifier() for part in name.split(".")):
        module = importlib.import_module(name)
        if os.path.realpath(getattr(module, "__file__", None) or "") == os.path.realpath(path):
            return module
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _values(module: object, kinds: tuple[type, ...], sources: dict[str, str]) -> Any:
    """The servers of a module: its names, and the attributes of its objects whose classes the program defines."""
    for name, value in list(vars(module).items()):
        if isinstance(value, kinds):
            yield name, value
        elif not isinstance(value, type) and hasattr(value, "__dict__"):
            home = sys.modules.get(type(value).__module__)
            if home is not None and os.path.realpath(getattr(home, "__file__", None) or "") in sources:
                for attribute, inner in list(vars(value).items()):
                    if isinstance(inner, kinds):
                        yield f"{name}.{attribute}", inner


def _made(module: object, name: str) -> Any:
    function = getattr(module, name, None)
    if function is None:
        return None
    made = function()
    if inspect.isawaitable(made):

        async def wait() -> Any:
            return await made

        return asyncio.run(wait())
    return made


def _failure(exc: BaseException, sources: dict[str, str]) -> dict[str, Any]:
    """What went wrong, and where in the program."""
    while isinstance(exc, BaseExceptionGroup) and exc.exceptions:
        exc = exc.exceptions[0]
    if isinstance(exc, SystemExit) and exc.__context__ is not None:  # `except Exception: sys.exit(1)`
        return _failure(exc.__context__, sources)
    place, line = None, 0
    for frame, number in traceback.walk_tb(exc.__traceback__):
        if os.path.realpath(frame.f_code.co_filename) in sources:
            place, line = os.path.realpath(frame.f_code.co_filename), number
    if isinstance(exc, SyntaxError) and exc.filename:
        place, line = os.path.realpath(exc.filename), exc.lineno or 1
    return {
        "type": type(exc).__name__,
        "text": " ".join(str(exc).split()),
        "missing": exc.name if isinstance(exc, ModuleNotFoundError) else None,
        "path": place,
        "line": line,
    }


async def _list_gemel(server: object) -> dict[str, Any]:
    import msgspec

    from gemel.client.client import Client
    from gemel.client.extensions import declared_extension
    from gemel.extensions.apps import MIME_TYPE, Apps

    # Other servers list pages of apps, and tools for them, for all clients.
    shows_pages = declared_extension(Apps.id, {"mimeTypes": [MIME_TYPE]})
    async with Client(server, era="2025", extensions=[shows_pages]) as client:
        capabilities = msgspec.to_builtins(client.server_capabilities)
        return {
            "instructions": client.instructions,
            "capabilities": capabilities,
            "tools": msgspec.to_builtins(await client.list_tools()),
            "prompts": msgspec.to_builtins(await client.list_prompts()) if "prompts" in capabilities else [],
            "resources": msgspec.to_builtins(await client.list_resources()) if "resources" in capabilities else [],
            "templates": msgspec.to_builtins(await client.list_resource_templates())
            if "resources" in capabilities
            else [],
        }


async def _list_fastmcp(server: object) -> dict[str, Any]:
    from fastmcp import Client

    options: Any = {"mode": "legacy"} if "mode" in inspect.signature(Client).parameters else {}
    async with Client(server, **options) as client:
        return await _listed(client, getattr(client, "initialize_result", None))


async def _list_sdk(server: object) -> dict[str, Any]:
    with contextlib.suppress(ImportError):  # version 1
        from mcp.shared.memory import create_connected_server_and_client_session

        inner = getattr(server, "_mcp_server", server)
        async with create_connected_server_and_client_session(inner) as session:
            # The connection is made already; a second one is the way to the answer.
            return await _listed(session, await session.initialize())
    from mcp import Client

    async with Client(server) as client:
        return await _listed(client, client)


async def _listed(client: object, described: object) -> dict[str, Any]:
    capabilities = getattr(described, "capabilities", None) or getattr(described, "server_capabilities", None)
    known = _plain(capabilities) if capabilities is not None else {}
    found: dict[str, Any] = {"instructions": getattr(described, "instructions", None), "capabilities": known}
    for key, method, field, other in (
        ("tools", "list_tools", "tools", "tools"),
        ("prompts", "list_prompts", "prompts", "prompts"),
        ("resources", "list_resources", "resources", "resources"),
        ("templates", "list_resource_templates", "resource_templates", "resourceTemplates"),
    ):
        found[key] = []
        if known and ("resources" if key == "templates" else key) not in known:
            continue
        cursor = None
        while True:
            try:
                page = await (getattr(client, method)(cursor=cursor) if cursor else getattr(client, method)())
            except Exception as exc:
                if "not found" in str(exc).lower():  # a server that has no such list
                    break
                raise
            items = page if isinstance(page, list) else getattr(page, field, None)
            found[key] += map(_plain, getattr(page, other) if items is None else items)
            cursor = None if isinstance(page, list) else getattr(page, "next_cursor", getattr(page, "nextCursor", None))
            if not cursor:
                break
    return found


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


if __name__ == "__main__":
    main()
