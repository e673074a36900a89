"""Calls of FastMCP's skills providers and transforms, and what they are in Gemel."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from gemel.migrate.arguments import CallArguments, code_of, text_of
from gemel.migrate.names import Name


class Counterpart(NamedTuple):
    """An expression, what it needs to be imported, and what is left to check by hand."""

    expression: cst.Call
    imports: tuple[Name, ...]
    note: str | None = None


_SKILL_MODULES = ("fastmcp.server.providers.skills", "fastmcp.skills")
#: Folders of skills below the home folder, by the class that reads them.
_SKILL_FOLDERS = {
    "ClaudeSkillsProvider": ".claude/skills",
    "CopilotSkillsProvider": ".copilot/skills",
    "CursorSkillsProvider": ".cursor/skills",
    "GeminiSkillsProvider": ".gemini/skills",
    "GooseSkillsProvider": ".config/agents/skills",
    "OpenCodeSkillsProvider": ".config/opencode/skills",
    "VSCodeSkillsProvider": ".copilot/skills",
}
_SKILLS_NOTE = (
    "add_skills: digests of the files come with skills/list in place of _manifest resources; a folder without skills is an error; "
    "new skills are found at the next start"
)
#: What makes the tools in Gemel, and what differs.
_TRANSFORMS = {
    "PromptsAsTools": ("prompt_tools", "the descriptions of list_prompts and get_prompt are Gemel's own"),
    "ResourcesAsTools": (
        "resource_tools",
        "the descriptions of list_resources and read_resource are Gemel's own; a resource without mime_type= is listed with null, "
        "not text/plain",
    ),
}


def added_counterpart(server: cst.BaseExpression, method: str, added: cst.Call, full_name: str) -> Counterpart | None:
    """Return the call of Gemel for `server.add_provider(added)` and `server.add_transform(added)`; None if there is none.

    Args:
        server: The server.
        method: The method.
        added: What is added, a call.
        full_name: The full name of what that calls.
    """
    short = full_name.rpartition(".")[2]
    if method == "add_transform" and short in _TRANSFORMS and full_name.startswith("fastmcp.server.transforms"):
        if len(added.args) != 1 or code_of(added.args[0].value) != code_of(server):
            return None
        function, note = _TRANSFORMS[short]
        call = _method(server, "include", f"{function}(structured_text=True)")
        return Counterpart(call, (Name(function),), note)
    if method != "add_provider" or not full_name.startswith(_SKILL_MODULES):
        return None
    arguments = CallArguments(added, () if short in _SKILL_FOLDERS else ("folder",))
    arguments.pop("reload")  # files are always read anew
    if text_of(arguments.get("supporting_files")) == "template":
        arguments.pop("supporting_files")
    if short in _SKILL_FOLDERS:
        if arguments.names() or arguments.starred:
            return None
        call = _method(server, "add_skills", f'Path.home() / "{_SKILL_FOLDERS[short]}"')
        return Counterpart(call, (Name("Path", "pathlib"),), _SKILLS_NOTE)
    folder = next((value for name in ("folder", "roots", "skill_path") if (value := arguments.pop(name))), None)
    if isinstance(folder, cst.List | cst.Tuple) and len(folder.elements) == 1:
        folder = folder.elements[0].value
    if (
        folder is None
        or isinstance(folder, cst.List | cst.Tuple | cst.StarredElement)
        or arguments.names()
        or arguments.starred
    ):
        return None
    if short not in ("SkillProvider", "SkillsDirectoryProvider"):
        return None
    return Counterpart(_method(server, "add_skills", folder), (), _SKILLS_NOTE)


def _method(server: cst.BaseExpression, method: str, argument: cst.BaseExpression | str) -> cst.Call:
    arguments = CallArguments(cst.Call(cst.Attribute(server, cst.Name(method))))
    arguments.put_first(argument)
    return arguments.call()
