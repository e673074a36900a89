# lists: inner_ping ping
# call: inner_ping {} = pong
# becomes: return build().http_app(
# becomes: from logging import getLogger
from fastmcp import FastMCP
from fastmcp.utilities.logging import get_logger

log = get_logger(__name__)


class Named(FastMCP):
    """A server with the functions of a house."""

    def add_all(self) -> None:
        self.tool(ping)


def ping() -> str:
    return "pong"


def build() -> FastMCP:
    inner = Named("inner")
    inner.add_all()
    return inner


def app():
    return build().http_app(stateless_http=True, json_response=True)


class Holder:
    def __init__(self, server):
        self.server = server

    def fill(self):
        self.server.add_all()
        self.server.mount(build(), namespace="inner")


mcp = Named("outer")
Holder(mcp).fill()
