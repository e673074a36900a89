"""One table of a TOML text changes, every other byte stays."""

from __future__ import annotations

import tomllib

import pytest

from gemel import StartError
from gemel.install import toml

PATH = ("mcp_servers", "weather")
CONFIG = """\
# mine
model = "gpt-5"  # the big one

[mcp_servers.docs]
command = "npx"
args = [
  "-y", # yes
  "docs",
]

[mcp_servers.docs.env]
KEY = "1"

# projects
[projects."/src"]
trust_level = "trusted"
"""


@pytest.mark.parametrize("text", ["", "# only a comment\n", CONFIG, CONFIG.replace("\n", "\r\n"), CONFIG.rstrip()])
def test_put_and_cut(text: str) -> None:
    entry = {"command": "python", "args": ["-m", "gemel", 'a "quoted" \\ \x7f ü'], "env": {"A": "b", "x y": "c"}}
    edited = toml.put(text, PATH, entry)
    assert edited.startswith(text)
    assert toml.get(edited, PATH) == entry
    assert toml.put(edited, PATH, entry) == edited
    assert toml.cut(edited, PATH).rstrip() == text.rstrip()


def test_a_table_in_the_middle_is_replaced_and_cut() -> None:
    path = ("mcp_servers", "docs")
    assert toml.cut(CONFIG, path) == CONFIG[: CONFIG.index("[mcp_servers")] + CONFIG[CONFIG.index("# projects") :]
    edited = toml.put(CONFIG, path, {"command": "new"})
    assert tomllib.loads(edited)["mcp_servers"] == {"docs": {"command": "new"}}
    assert "# projects\n[projects" in edited


def test_quoted_keys_are_the_same_table() -> None:
    text = '[ mcp_servers . "weather" ]\ncommand = "x"\n\n[other]\na = 1\n'
    assert toml.cut(text, PATH) == "\n[other]\na = 1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('mcp_servers = { docs = { command = "x" } }\n', "can't be changed safely"),
        ("a = ", "not TOML"),
        ("mcp_servers = 1\n", "not a table"),
    ],
)
def test_what_can_not_be_changed_is_refused(text: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        toml.put(text, PATH, {"command": "x"})
    with pytest.raises(StartError):
        toml.cut('[mcp_servers]\nweather = { command = "x" }\n', PATH)
