"""Skills, of the extension `io.modelcontextprotocol/skills`: https://modelcontextprotocol.io/seps/2640-skills-extension."""

from __future__ import annotations

from typing import Any, Literal

from gemel.schema.base import CacheableResult, Model, Page

#: The file that makes a folder a skill.
MAIN = "SKILL.md"


class SkillFile(Model, kw_only=True):
    """A file of a skill.

    Args:
        uri: The URI that it is read by.
        digest: `sha256:` and the hash of its bytes in 64 hexadecimal digits.
        size: Its size in bytes.
    """

    uri: str
    digest: str
    size: int


class Skill(Model, kw_only=True):
    """An entry in the list of skills: what a skill says of itself, and which files it has.

    Args:
        uri: The URI of its SKILL.md.
        frontmatter: The frontmatter of its SKILL.md, with everything that its author wrote.
        resources: All its files with their digests; "dynamic" if they are made when they are read.
    """

    uri: str
    frontmatter: dict[str, Any]
    resources: list[SkillFile] | Literal["dynamic"]

    @property
    def name(self) -> str:
        """Its name, a label: two skills may have the same."""
        return str(self.frontmatter.get("name", ""))

    @property
    def description(self) -> str:
        """What it does, and when to use it."""
        return str(self.frontmatter.get("description", ""))

    @property
    def root(self) -> str:
        """The URI of its folder, without a slash at the end."""
        return self.uri.removesuffix("/" + MAIN)


class ListSkillsResult(Page, kw_only=True):
    """The result of `skills/list`."""

    skills: list[Any]


class GetSkillResult(CacheableResult, kw_only=True):
    """The result of `skills/get`."""

    skill: Any
