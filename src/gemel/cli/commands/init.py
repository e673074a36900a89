"""`gemel init`: a new project with a server and its tests."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path

from gemel.cli.program.template import command_lines, project_files
from gemel.client.terminal.display import write
from gemel.errors import StartError
from gemel.user_files import path_within, write_new_file, writing


def run(options: argparse.Namespace) -> int:
    """Write the files into a new or empty folder, and print what to type next."""
    folder = Path(options.folder)
    files = project_files(_project_name(options.name, folder))
    _refuse_used(folder)
    with writing(folder):
        for path, text in files.items():
            file = path_within(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_new_file(file, text.encode())
    lines = [f"Wrote {', '.join(files)} in {folder}. Next:", ""]
    if folder.absolute() != Path.cwd():
        lines.append(f"  cd {shlex.quote(str(folder))}")
    lines += [f"  {line}" for line in command_lines()]
    write(sys.stdout, "\n".join(lines) + "\n")
    return 0


def _project_name(name: str | None, folder: Path) -> str:
    """Return the name of the project: that of the folder by default, as far as packages may have it."""
    if name is not None:
        if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name) is None:
            raise StartError(f"--name {name}: use letters, digits, '-', '_' and '.', as names of packages do")
        return name
    return re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-") or "server"


def _refuse_used(folder: Path) -> None:
    """Raises StartError if there is something in the folder, besides a new repository."""
    try:
        names = sorted(name for name in os.listdir(folder) if name != ".git")
    except FileNotFoundError:
        return
    except NotADirectoryError as exc:
        raise StartError(f"{folder} is a file, or in one: give the name of a new folder") from exc
    except OSError as exc:
        raise StartError(f"{folder} can't be read: {exc.strerror or exc}") from exc
    if names:
        more = ", …" if len(names) > 3 else ""
        raise StartError(f"{folder} is not empty (it has {', '.join(names[:3])}{more}): give a new or empty folder")
