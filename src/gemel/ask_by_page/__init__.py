"""Questions that reach everybody: for clients without forms, `ctx.elicit` asks on a web page of the server."""

from gemel.ask_by_page.asking import AskByPage as AskByPage
from gemel.ask_by_page.login import PageLogin as PageLogin

__all__ = ["AskByPage", "PageLogin"]
