# read: skill://brew-tea/SKILL.md = "---\nname: brew-tea\ndescription: Brew a pot of tea\n---\nAsk first.\n"
# becomes: mcp.add_skills(folder)
# notes: _manifest
# differs: skill://brew-tea
import tempfile
from pathlib import Path

from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider

folder = Path(tempfile.mkdtemp())
(folder / "brew-tea").mkdir()
(folder / "brew-tea" / "SKILL.md").write_text("---\nname: brew-tea\ndescription: Brew a pot of tea\n---\nAsk first.\n")

mcp = FastMCP("kitchen")
mcp.add_provider(SkillsDirectoryProvider(roots=folder, reload=True))
