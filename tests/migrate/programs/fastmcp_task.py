# packages: fastmcp-tasks
# call: count {"steps": 2} = "2 of 2"
# becomes: mcp.add_extension(Tasks())
# becomes: @mcp.tool(task=True)
# becomes: progress: Annotated[Progress, Depends(Progress)],
from datetime import timedelta

from fastmcp import FastMCP
from fastmcp.dependencies import Progress
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

mcp = FastMCP("counter")
mcp.add_extension(TasksExtension())


@mcp.tool(task=TaskConfig(poll_interval=timedelta(seconds=1)))
async def count(
    steps: int,
    progress: Progress = Progress(),
) -> str:
    await progress.set_total(steps)
    for _ in range(steps):
        await progress.increment()
        await progress.set_message("counting")
    return f"{progress.current} of {progress.total}"
