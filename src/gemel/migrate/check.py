"""Runs migrated programs beside their originals, each in a process of its own, and compares what their servers list.

The programs are imported. One that makes its server only when it is run, is run then, without arguments, until it serves. The files
stay as they are, and the new sources reach the process in memory.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from gemel.migrate import compare
from gemel.migrate.files import FileMigration
from gemel.migrate.names import PACKAGES
from gemel.migrate.project import Sources

#: How long a program may take until it is imported and its servers are listed.
SECONDS = 60.0
#: Programs begin so where a file is executed.
_MAIN = re.compile(r"""^if __name__ == ["']__main__["']:""", re.MULTILINE)
_IMPORT = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)


class CheckOutcome(enum.IntEnum):
    """What the check of a program showed; the values are exit codes of the command."""

    SAME = 0
    DIFFERS = 3
    FAILS = 4
    UNKNOWN = 5


#: The worst first: of several programs this one counts.
ORDER = (CheckOutcome.FAILS, CheckOutcome.DIFFERS, CheckOutcome.UNKNOWN, CheckOutcome.SAME)


class Verdict(NamedTuple):
    """What was seen of one program, or of one of its servers: the file, and the text behind it."""

    outcome: CheckOutcome
    path: Path
    text: str
    #: The line of the new source where the program ended; 0 if that is not known.
    line: int = 0


class EntryPoint(NamedTuple):
    """Where a program begins: a function without arguments, or a file that is executed, and the name of the program."""

    module: str
    path: Path
    function: str
    name: str


def programs(files: Sequence[FileMigration]) -> list[list[FileMigration]]:
    """Return the changed files in groups: those of a group import each other, and are run in one process."""
    known = [file for file in files if file.source is not None]  # what connects two others may be unchanged
    sources = Sources({file.path: file.before for file in known})
    found: list[list[FileMigration]] = []
    left = {file.path: file for file in known}
    while left:
        group = sources.connected({next(iter(left))}, left)
        found.append([left.pop(path) for path in list(left) if path in group])
    return [
        files
        for files in found
        if any(file.diff for file in files)
        and (
            any(file.serves and _can_be_imported(file) for file in files)
            or (any(file.makes for file in files) and entries(files))
        )
    ]


def entries(program: Sequence[FileMigration]) -> list[EntryPoint]:
    """Return where a program may begin: the scripts of its project, files that are executed, functions that run a server."""
    known = Sources({file.path: file.before for file in program})
    roots = list(dict.fromkeys(known.root(file.path) for file in program))
    found = list(_scripts(roots))
    for file in program:
        place = known.root(file.path) / known.module_name(file.path).partition(".")[0] / "__main__.py"
        if place.is_file():
            found.append(EntryPoint(f"{place.parent.name}.__main__", place.absolute(), "", place.parent.name))
    made = [file for file in program if file.serves or file.makes]
    for file in made:
        if _MAIN.search(file.before):
            found.append(EntryPoint(known.module_name(file.path), file.path.absolute(), "", file.path.stem))
    for file in made:
        module = known.module_name(file.path)
        found += [EntryPoint(module, file.path.absolute(), name, file.path.stem) for name in file.runners]
    return list(dict.fromkeys(found))


def _scripts(roots: Sequence[Path]) -> Iterator[EntryPoint]:
    """The `[project.scripts]` of the nearest pyproject.toml around each folder, if they are in it."""
    for root in roots:
        project = next(
            (path for folder in (root, *root.parents) if (path := folder / "pyproject.toml").is_file()), None
        )
        if project is None:
            continue
        try:
            scripts = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["scripts"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for name, target in scripts.items():
            module, _, function = str(target).partition(":")
            base = root.joinpath(*module.split("."))
            files = [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]
            if files and function.isidentifier():
                yield EntryPoint(module, files[0].absolute(), function, name)


def check(program: Sequence[FileMigration], python: str | None = None) -> list[Verdict]:
    """Run the new and the old version of a program, and compare what they list.

    Args:
        program: The files of one program, as `programs` returns them.
        python: The interpreter that runs the original; this one by default.

    Returns:
        A verdict for each server, or one for the whole program.
    """
    imported = [file.path for file in program if file.serves and _can_be_imported(file)]
    first = imported[0] if imported else next(file.path for file in program if file.makes)
    before, after = _run_both(program, python)
    if "failure" in after:
        return [_failed(first, program, after["failure"], before.get("failure"), python)]
    skipped = [_failed(first, program, failure, None, python) for failure in after["skipped"]]
    if _lists_something(before, after):
        return [*_compared(first, program, before, after["servers"], python), *skipped]
    nothing = Verdict(CheckOutcome.UNKNOWN, first, "not checked: no server is there after the import")
    verdicts = list(_compared(first, program, before, after["servers"], python)) or [nothing]
    for entry in entries(program):
        before, after = _run_both(program, python, entry)
        found = _ran(entry, first, program, before, after, python)
        verdicts = [*(verdict for verdict in verdicts if verdict.outcome == CheckOutcome.FAILS), *found]
        if _lists_something(before, after) or any(
            part.get("failure", {}).get("type") == "timeout" for part in (before, after)
        ):
            break
    return [*verdicts, *skipped]


def _lists_something(*runs: Mapping[str, Any]) -> bool:
    """Whether a server lists something, or can't be listed."""
    servers = [lists for run in runs for lists in run.get("servers", {}).values()]
    return any("failure" in lists or compare.lists_something(lists) for lists in servers)


def _ran(
    entry: EntryPoint,
    first: Path,
    program: Sequence[FileMigration],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    python: str | None,
) -> list[Verdict]:
    """The verdicts for a program that was run."""
    if "failure" in after:
        return [_failed(first, program, after["failure"], before.get("failure"), python)]
    if after["servers"] or before.get("servers"):
        return list(_compared(first, program, before, after["servers"], python))
    text = f"not checked: {entry.name} serves nothing, if it is run without arguments"
    return [Verdict(CheckOutcome.UNKNOWN, first, text)]


def _run_both(
    program: Sequence[FileMigration], python: str | None, entry: EntryPoint | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Import or run the old and the new version at the same time."""
    new = {file.path: file.source or "" for file in program}
    old = {file.path: file.before for file in program}
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(_run, python or sys.executable, old, program, stopped, entry)
        try:
            after = _run(sys.executable, new, program, stopped, entry)
            return running.result(), after
        except BaseException:  # Ctrl-C
            stopped.set()
            raise


def _can_be_imported(file: FileMigration) -> bool:
    """Whether a file does nothing but define things when it is imported, by its name."""
    return file.path.name != "__main__.py"


def _failed(
    first: Path, program: Sequence[FileMigration], new: Mapping[str, Any], old: Any, python: str | None
) -> Verdict:
    """The verdict for a program that can't be imported, or whose server can't be listed."""
    path = next((file.path for file in program if os.path.realpath(file.path) == new["path"]), first)
    missing = (new["missing"] or "").partition(".")[0]
    what = _described(new)
    if missing in PACKAGES:
        what = f"{_not_installed(new['missing'])} here, and it is still needed: see the notes"
    elif missing:
        return Verdict(
            CheckOutcome.UNKNOWN, path, f"not checked: {what}; run `gemel migrate` where {missing} is installed"
        )
    elif old is not None and (_same(old, new) or _same_place(old, new, program)):
        return Verdict(
            CheckOutcome.UNKNOWN, path, f"not checked: the original doesn't start here either: {_described(old)}"
        )
    elif new["type"] == "timeout" and old is not None and old["missing"]:
        return Verdict(CheckOutcome.UNKNOWN, path, f"not checked: {what}")
    return Verdict(CheckOutcome.FAILS, path, f"doesn't start: {what}", new["line"])


def _same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return (old["type"], old["text"]) == (new["type"], new["text"])


def _same_place(old: Mapping[str, Any], new: Mapping[str, Any], program: Sequence[FileMigration]) -> bool:
    """Whether both versions end at the same line of the program, and the original not for want of a package."""
    file = next((file for file in program if os.path.realpath(file.path) == new["path"]), None)
    if file is None or old["path"] != new["path"] or old["missing"]:
        return False
    return bool(file.original_line(new["line"]) == old["line"])


def _compared(
    first: Path,
    program: Sequence[FileMigration],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    python: str | None,
) -> Iterator[Verdict]:
    failure = before.get("failure")
    for label, lists in after.items():
        name = "" if len(after) == 1 else f"{label}: "
        old = before.get("servers", {}).get(label)
        if "failure" in lists:
            verdict = _failed(first, program, lists["failure"], (old or {}).get("failure"), python)
            yield verdict._replace(text=name + verdict.text)
            continue
        counted = compare.count(lists)
        if failure is not None and (failure["missing"] or "").partition(".")[0] in PACKAGES:
            where = f" for {python}" if python else ""
            text = f"{counted}; not compared, as {_not_installed(failure['missing'])}{where}"
            yield Verdict(CheckOutcome.UNKNOWN, first, f"{name}starts: {text}")
        elif failure is not None or old is None or "failure" in old:
            why = _described(failure or (old or {}).get("failure") or {"type": "", "text": "it has no such server"})
            yield Verdict(
                CheckOutcome.UNKNOWN,
                first,
                f"{name}starts: {counted}; not compared, as the original doesn't start here: {why}",
            )
        else:
            found = list(compare.differences(old, lists))
            if not found and not compare.lists_something(lists):
                text = "not compared: nothing is registered after the import, only in a function"
                yield Verdict(CheckOutcome.UNKNOWN, first, name + text)
                continue
            for text in found:
                yield Verdict(CheckOutcome.DIFFERS, first, f"{name}{text}")
            if not found:
                told = f"{counted}: same"
                if left_out := compare.text_schemas_left_out(old, lists):
                    told += (
                        f", but {left_out} with text results list no output schema, as Gemel sends texts as they are"
                    )
                if unwrapped := compare.results_unwrapped(old, lists):
                    told += f", but {unwrapped} send objects as results without a field `result` around them"
                if formats := compare.formats_left_out(old, lists):
                    told += (
                        f", but {formats} list times or durations in results without a format, which not each value has"
                    )
                if moved := compare.words_moved(old, lists):
                    told += f", but {moved} have words of their docstrings in another one of their descriptions"
                yield Verdict(CheckOutcome.SAME, first, name + told)
    for label in before.get("servers", {}):
        if label not in after:
            yield Verdict(CheckOutcome.DIFFERS, first, f"the server {label} is missing")


def _not_installed(module: str) -> str:
    """Why a module of the original's library can't be imported: the package is missing, or has another version."""
    package, dot, _ = module.partition(".")
    return f"{package} isn't installed" + (f" in a version that has {module}" if dot else "")


def _described(failure: Mapping[str, Any]) -> str:
    if failure["type"] in ("", "timeout", "end"):
        return str(failure["text"])
    if failure["type"] == "SystemExit":
        return f"it ends with code {failure['text'] or 0}, if it is run without arguments"
    return f"{failure['type']}: {failure['text']}" if failure["text"] else str(failure["type"])


def _run(
    python: str,
    sources: Mapping[Path, str],
    program: Sequence[FileMigration],
    stopped: threading.Event,
    entry: EntryPoint | None,
) -> dict[str, Any]:
    """Import the files that have servers, or run the program, and list the servers."""
    known = Sources(sources)
    packages = {name for text in sources.values() for name in _IMPORT.findall(text)} & {"gemel", *PACKAGES}
    job = {
        "sources": {str(path.absolute()): text for path, text in sources.items()},
        "folders": list(dict.fromkeys(str(known.root(path)) for path in sources)),
        "packages": sorted(packages | ({"mcp"} & packages)),
        "modules": [
            {"name": known.module_name(file.path), "path": str(file.path.absolute()), "factories": file.factories}
            for file in program
            if file.serves and _can_be_imported(file)
        ],
        "run": entry and {**entry._asdict(), "path": str(entry.path)},
        "seconds": SECONDS,
    }
    with tempfile.TemporaryDirectory(prefix="gemel-migrate-", ignore_cleanup_errors=True) as folder:
        given, result = Path(folder, "job.json"), Path(folder, "result.json")
        given.write_text(json.dumps(job), encoding="utf-8")
        script = pkgutil.get_data("gemel.migrate", "probe.py")
        assert script is not None
        command = [python, "-c", script.decode(), str(given), str(result)]
        place = Path(folder, "work")
        place.mkdir()
        try:
            ended = _execute(command, stopped, place if entry else None)
        except OSError as exc:
            return {"failure": _failure("end", f"{python} can't be run: {exc.strerror or exc}")}
        if result.exists():
            with contextlib.suppress(ValueError):
                found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
                return found
        if ended is None:
            return {
                "failure": _failure("timeout", f"no end of the {'program' if entry else 'import'} within {SECONDS:g} s")
            }
        return {"failure": _failure("end", f"the process ended with code {ended}")}


def _failure(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, "text": text, "missing": None, "path": None, "line": 0}


def _execute(command: Sequence[str], stopped: threading.Event, folder: Path | None) -> int | None:
    """Run a command without input and output, within the time limit, and end all that it started. None: the time was up."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}  # equal sets have one order
    if os.name == "nt":
        return _execute_in_job(command, environment, folder)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # The process is not reaped before its group was ended: until then the id is its own.
        end = time.monotonic() + SECONDS
        if not hasattr(os, "waitid"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(SECONDS)
            return None
        while not (ended := os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)):
            if time.monotonic() > end or stopped.wait(0.02):
                return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _execute_in_job(command: Sequence[str], environment: Mapping[str, str], folder: Path | None) -> int | None:
    from gemel.transports.stream.windows_job import start_in_job

    process, job = start_in_job(subprocess.list2cmdline(command), environment, folder)
    assert process.stdin is not None
    process.stdin.close()
    for stream in (process.stdout, process.stderr):
        threading.Thread(target=stream.read, daemon=True).start()  # type: ignore[union-attr]  # both are pipes
    try:
        return process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        return None
    finally:
        job.end()
        with contextlib.suppress(OSError):
            process.kill()


def worst(outcomes: Iterable[CheckOutcome]) -> CheckOutcome:
    """Return the outcome that counts."""
    return min(outcomes, key=ORDER.index, default=CheckOutcome.SAME)
