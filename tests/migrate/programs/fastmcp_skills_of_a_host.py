# only: rewrite
# becomes: mcp.add_skills(Path.home() / ".claude/skills")
# becomes: from pathlib import Path
# becomes: mcp.add_skills("/srv/one")
# notes: a folder without skills is an error
# notes: write server.add_skills(folder) for each folder
from fastmcp import FastMCP
from fastmcp.server.providers.skills import ClaudeSkillsProvider, SkillsDirectoryProvider

mcp = FastMCP("skills")
mcp.add_provider(ClaudeSkillsProvider())
mcp.add_provider(SkillsDirectoryProvider(["/srv/one"], supporting_files="template"))
mcp.add_provider(SkillsDirectoryProvider(roots=["/srv/skills", "/opt/skills"]))
