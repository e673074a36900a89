"""The twin of examples/servers/backup.py in FastMCP, for clients of the handshake era: `ctx.elicit` works there only."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from shutil import copy2, rmtree

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.elicitation import AcceptedElicitation

mcp = FastMCP("backup")


@dataclass
class Plan:
    name: str
    hidden: bool = False


def list_copies(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).iterdir() if path.is_dir())


def list_files(folder: str, hidden: bool) -> list[Path]:
    files = [path for path in sorted(Path(folder).iterdir()) if path.is_file()]
    return [path for path in files if hidden or not path.name.startswith(".")]


@mcp.tool(timeout=3600)
async def back_up(ctx: Context, folder: str) -> str:
    """Copy the files of a folder; the user is asked how, and whether to delete older copies."""
    if not Path(folder).is_dir():
        raise ToolError(f"There is no folder {folder}.")
    old = list_copies(folder)
    answer = await ctx.elicit("How shall the copy be made?", Plan)
    if not isinstance(answer, AcceptedElicitation):
        raise ToolError(f"The user did not answer ({answer.action}).")
    plan = answer.data
    files, target = list_files(folder, plan.hidden), Path(folder, plan.name)
    target.mkdir()
    for number, path in enumerate(files, 1):
        await asyncio.to_thread(copy2, path, target)
        await ctx.report_progress(number, len(files), path.name)
    if old:
        consent = await ctx.elicit(f"Delete {len(old)} older copies?", bool)
        if isinstance(consent, AcceptedElicitation) and consent.data:
            for path in old:
                await asyncio.to_thread(rmtree, path)
    return f"Copied {len(files)} files to {plan.name}."


if __name__ == "__main__":
    mcp.run()
