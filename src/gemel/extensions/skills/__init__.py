"""Skills (`io.modelcontextprotocol/skills`, SEP-2640): folders of instructions for agents, served as resources.

https://modelcontextprotocol.io/seps/2640-skills-extension says how they are served, https://agentskills.io/specification what
is in them. `server.py` and `client.py` are the two sides, `entry.py` is what both check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.schema.skills import Skill as Skill
from gemel.schema.skills import SkillFile as SkillFile

if TYPE_CHECKING:
    from gemel.extensions.skills.client import LoadedSkill as LoadedSkill
    from gemel.extensions.skills.client import SkillRejected as SkillRejected
    from gemel.extensions.skills.client import SkillsClient as SkillsClient
    from gemel.extensions.skills.server import Skills as Skills

__all__ = ("LoadedSkill", "Skill", "SkillFile", "SkillRejected", "Skills", "SkillsClient")

_HOMES = {
    "LoadedSkill": "client",
    "SkillRejected": "client",
    "Skills": "server",
    "SkillsClient": "client",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
