# lists: echo
# becomes: issuer=f"{ROOT}/notes"
# becomes: well_known = [Route(path, app) for path, app in auth.routes(urlsplit(auth.url).path).items()]
# becomes: app = Starlette(routes=[*well_known, Mount("/notes", app=notes)])
from starlette.applications import Starlette
from starlette.routing import Mount

from fastmcp import FastMCP
from fastmcp.server.auth.providers.github import GitHubProvider

ROOT = "http://127.0.0.1:8000"
auth = GitHubProvider(client_id="0123", client_secret="a-secret", base_url=f"{ROOT}/notes")
mcp = FastMCP("notes", auth=auth)


@mcp.tool
def echo(text: str) -> str:
    return text


notes = mcp.http_app(path="/mcp")
well_known = auth.get_well_known_routes(mcp_path="/mcp")
app = Starlette(routes=[*well_known, Mount("/notes", app=notes)], lifespan=notes.lifespan)
