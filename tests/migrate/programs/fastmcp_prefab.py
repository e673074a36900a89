# lists: add drop list_tasks lookup tasks
# call: add {"task": "sweep"} = ["wash", "sweep"]
# call: lookup {"word": "w"} = ["wash"]
# call: list_tasks {} = ["wash"]
# becomes: app = PrefabApps()
# becomes: @app.tool(audience="app")
# becomes: @app.tool("lookup", audience="app")
# becomes: @app.ui(audience="model")
# call: drop {"task": "wash"} = []
# becomes: app.tool(name="drop", audience="app")(remove)
# becomes: mcp.add_extension(app)
# notes: neither list nor call the tools with audience='app'
from prefab_ui.actions.mcp import CallTool
from prefab_ui.app import PrefabApp
from prefab_ui.components import Column, Form, Heading

from fastmcp import FastMCP, FastMCPApp

known = ["wash"]
app = FastMCPApp("Tasks")


@app.tool()
def add(task: str) -> list[str]:
    """Add a task."""
    return [*known, task]


@app.tool("lookup")
def look_up(word: str) -> list[str]:
    """Find tasks."""
    return [task for task in known if word in task]


@app.tool(model=True)
def list_tasks() -> list[str]:
    """All tasks."""
    return list(known)


def remove(task: str) -> list[str]:
    """Remove a task."""
    return [other for other in known if other != task]


app.tool(remove, name="drop")


@app.ui
def tasks() -> PrefabApp:
    """Show the tasks."""
    with Column() as view:
        Heading("Tasks")
        with Form(on_submit=CallTool(add)):
            Heading("New")
    return PrefabApp(view=view, state={"tasks": list(known)})


mcp = FastMCP("Tasks")
mcp.add_provider(app)
