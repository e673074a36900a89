"""A tool returns a user interface that is written in Python."""

from prefab_ui.components import Column, Heading

from gemel import Server
from gemel.extensions.prefab import PAGE, PrefabApps
from gemel.sync import Client

server = Server("shop")
apps = server.add_extension(PrefabApps())


@apps.ui
def offers() -> Column:
    """Show the offers."""
    with Column() as view:
        Heading("Green tea")
    return view


with Client(server) as client:
    assert "Green tea" in str(client.call_tool("offers").structured_content)
    assert client.read_resource(PAGE).text.lstrip().lower().startswith("<!doctype html")
