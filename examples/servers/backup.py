"""A long job that asks the user twice and reports progress. Clients of both eras can use it."""

from dataclasses import dataclass
from pathlib import Path
from shutil import copy2, rmtree

from gemel import Context, Server, ToolError

server = Server("backup")


@dataclass
class Plan:
    name: str
    hidden: bool = False


def list_copies(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).iterdir() if path.is_dir())


def list_files(folder: str, hidden: bool) -> list[Path]:
    files = [path for path in sorted(Path(folder).iterdir()) if path.is_file()]
    return [path for path in files if hidden or not path.name.startswith(".")]


@server.tool(timeout=3600)
def back_up(ctx: Context, folder: str) -> str:
    """Copy the files of a folder; the user is asked how, and whether to delete older copies."""
    if not Path(folder).is_dir():
        raise ToolError(f"There is no folder {folder}.")
    old = ctx.sync.step(list_copies, folder)
    plan = ctx.sync.elicit("How shall the copy be made?", Plan)

    def copy() -> int:
        files, target = list_files(folder, plan.hidden), Path(folder, plan.name)
        target.mkdir()
        for number, path in enumerate(files, 1):
            copy2(path, target)
            ctx.sync.report_progress(number, len(files), path.name)
        return len(files)

    count = ctx.sync.step(copy)
    if old and ctx.sync.elicit(f"Delete {len(old)} older copies?", bool):
        for path in old:
            rmtree(path)
    return f"Copied {count} files to {plan.name}."


if __name__ == "__main__":
    server.run()
