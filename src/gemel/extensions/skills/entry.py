"""What both sides check of a skill: the digests of its files, and the frontmatter of its SKILL.md."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from gemel.errors import DefinitionError
from gemel.server.features.yaml_values import read_yaml
from gemel.version import missing_extra

ID = "io.modelcontextprotocol/skills"
#: What a skill should not exceed: files, and bytes of all files. SEP-2640, section "Resources".
MAX_FILES, MAX_BYTES = 512, 16 << 20
#: Bytes of the frontmatter.
MAX_FRONTMATTER = 64 << 10
#: Levels of lists and mappings in it.
MAX_DEPTH = 32
#: https://agentskills.io/specification, "Frontmatter".
MAX_DESCRIPTION = 1024

_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_FRONTMATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)(?:^|\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


def digest_of(data: bytes) -> str:
    """The digest of a file's bytes, as entries have it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def check_frontmatter(values: Mapping[str, Any], folder: str) -> None:
    """Check what the Agent Skills specification demands of the frontmatter of a skill in a folder. Raises ValueError."""
    name, description = values.get("name"), values.get("description")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(
            f"its name is {name!r}: use 1 to 64 lowercase letters, digits and single hyphens, none of them at an end"
        )
    if name != folder:
        raise ValueError(f"its name is {name!r}, but its folder is called {folder!r}: give both the same name")
    if not isinstance(description, str) or not description.strip():
        raise ValueError("it has no description: say in the frontmatter what it does and when to use it")
    if len(description) > MAX_DESCRIPTION:
        raise ValueError(f"its description has {len(description)} characters; {MAX_DESCRIPTION} are the limit")


def parse_frontmatter(text: str) -> dict[str, Any]:
    """Read the YAML frontmatter of a SKILL.md as JSON values.

    YAML is read by its core schema, so that dates and `yes` are texts, and 1.0 is a number. Anchors and tags are refused.

    Args:
        text: The whole file.

    Returns:
        The members.

    Raises:
        ValueError: There is none, or it is not a mapping of JSON values.
        DefinitionError: PyYAML is not installed.
    """
    found = _FRONTMATTER.match(text)
    if found is None:
        raise ValueError("it does not begin with frontmatter: a line ---, YAML, and a line ---")
    source = found[1]
    if len(source) > MAX_FRONTMATTER:
        raise ValueError(f"its frontmatter has more than {MAX_FRONTMATTER} characters")
    values = _load(source)
    if not isinstance(values, dict):
        raise ValueError("its frontmatter is not a mapping: write `name: …` and `description: …`")
    return values


def require_yaml() -> None:
    """Check that PyYAML is there. What reads skills later calls this when it is made.

    Raises:
        DefinitionError: It is not installed.
    """
    try:
        import yaml  # noqa: F401
    except ImportError:
        raise DefinitionError(missing_extra("Skills need", "skills")) from None


def _load(source: str) -> Any:
    require_yaml()
    try:
        return read_yaml(source, plain=True, max_depth=MAX_DEPTH)
    except ValueError as exc:
        raise ValueError(f"its frontmatter {exc}") from None


def same_json(one: object, other: object) -> bool:
    """Whether two JSON values are equal; 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
