# call: within {"path": "a.txt"} = true
# call: within {"path": "../a.txt"} = false
# call: within {"path": "/a.txt"} = false
# call: leads_out {"path": "a/../../b"} = true
# call: leads_out {"path": "C:b"} = true
# call: leads_out {"path": "a/../b"} = false
# read: book://978/Emma = 978 Emma
# becomes: def safe_join(base: str | Path, *parts: str) -> Path:
# becomes: BOOKS = UriTemplate("book://{isbn}/{title}")
from pathlib import Path

from mcp.server import MCPServer
from mcp.shared.path_security import PathEscapeError, contains_path_traversal, is_absolute_path, safe_join
from mcp.shared.uri_template import UriTemplate

BOOKS = UriTemplate.parse("book://{isbn}/{title}")
FOLDER = Path.cwd()

mcp = MCPServer("files")


@mcp.tool()
def within(path: str) -> bool:
    try:
        return safe_join(FOLDER, path).name == path
    except PathEscapeError:
        return False


@mcp.tool()
def leads_out(path: str) -> bool:
    return contains_path_traversal(path) or is_absolute_path(path)


@mcp.resource(str(BOOKS))
def book(isbn: str, title: str) -> str:
    matched = BOOKS.match(BOOKS.expand({"isbn": isbn, "title": title}))
    assert sorted(matched) == sorted(BOOKS.variable_names)
    return f"{isbn} {title}"
