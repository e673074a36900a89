"""A server offers a skill, and a client reads it."""

import asyncio
from pathlib import Path

from gemel import Client, Server, SkillsClient

SKILL = """---
name: tea
description: Make tea.
---
Boil water first.
"""


Path("skills/tea").mkdir(parents=True)
Path("skills/tea/SKILL.md").write_text(SKILL)
server = Server("kitchen")
server.add_skills("skills")


async def main() -> None:
    async with Client(server) as client:
        (skill,) = await SkillsClient(client).list()
        assert skill.name == "tea", skill


asyncio.run(main())
