"""YAML as JSON values, by the core schema of YAML 1.2. PyYAML itself reads 1.1, in which `yes` is true and `2026-01-01` a date."""

from __future__ import annotations

import math
import re
from typing import Any

#: Levels of lists and mappings.
MAX_DEPTH = 100
#: Values of a document, those counted several times that several aliases stand for.
MAX_VALUES = 2_000_000

#: https://yaml.org/spec/1.2.2/#103-core-schema
_NULL = re.compile(r"(?:null|Null|NULL|~|)")
_TRUE, _FALSE = re.compile(r"true|True|TRUE"), re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]{1,300}")
_BASED = re.compile(r"0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CORE = "tag:yaml.org,2002:"
#: The tags that PyYAML gives to what has none.
_TAGS = frozenset(
    f"{_CORE}{name}" for name in ("bool", "float", "int", "map", "merge", "null", "seq", "str", "timestamp", "value")
)


def read_yaml(source: str, *, plain: bool = False, max_depth: int = MAX_DEPTH) -> Any:
    """Read a YAML document. Keys are texts as they are written: `200:` is "200".

    Args:
        source: The text.
        plain: Whether anchors, aliases and tags are refused. Otherwise aliases and merge keys (`<<`) are resolved.
        max_depth: Levels of lists and mappings.

    Raises:
        ImportError: PyYAML is not installed.
        ValueError: It is not YAML, or has no JSON values; the text continues a sentence ("is not YAML: …").
    """
    import yaml

    if plain:
        _check_tokens(yaml, source, max_depth)
    try:
        node = yaml.compose(source, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as exc:
        raise ValueError(f"is not YAML: {_one_line(exc)}") from None
    except RecursionError:
        raise ValueError(f"is nested deeper than {max_depth} levels") from None
    return _YamlReader(yaml, max_depth).value(node, 0)


def _check_tokens(yaml: Any, source: str, max_depth: int) -> None:
    """Refuse what has other meanings than JSON. The time that PyYAML takes for a token grows with the depth where it stands."""
    depth = 0
    try:
        for token in yaml.scan(source, Loader=yaml.SafeLoader):
            if isinstance(token, (yaml.AnchorToken, yaml.AliasToken, yaml.TagToken)):
                raise ValueError("has an anchor, alias or tag: write plain YAML")
            kind = type(token).__name__
            depth += kind.endswith("StartToken") - kind.endswith("EndToken")
            if depth > max_depth:
                raise ValueError(f"is nested deeper than {max_depth} levels")
    except yaml.YAMLError as exc:
        raise ValueError(f"is not YAML: {_one_line(exc)}") from None


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__


class _YamlReader:
    """Makes values of the nodes of one document. An alias is a node that occurs again, perhaps within itself."""

    def __init__(self, yaml: Any, max_depth: int) -> None:
        self._yaml = yaml
        self._max_depth = max_depth
        self._count = 0

    def value(self, node: Any, depth: int) -> Any:
        """Make the value of a node. Raises ValueError."""
        if node is None:
            return None
        self._count += 1
        if depth > self._max_depth:
            raise ValueError(f"is nested deeper than {self._max_depth} levels")
        if self._count > MAX_VALUES:
            raise ValueError(f"has more than {MAX_VALUES} values, its aliases resolved")
        if node.tag not in _TAGS:
            raise ValueError(f"has a tag that JSON does not have: {node.tag[:60]!r}")
        if isinstance(node, self._yaml.SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        if isinstance(node, self._yaml.MappingNode):
            return self._members(node, depth)
        return node.value if node.style else _scalar(node.value)

    def _members(self, node: Any, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, self._yaml.ScalarNode) or key.value in members:
                raise ValueError(f"has a key that is repeated or no text: {repr(key.value)[:60]}")
            value = self.value(item, depth + 1)
            if key.tag == f"{_CORE}merge":  # https://yaml.org/type/merge.html
                for one in value if isinstance(value, list) else [value]:
                    merged = {**(one if isinstance(one, dict) else {}), **merged}
            else:
                members[key.value] = value
        return {**merged, **members} if merged else members


def _scalar(text: str) -> Any:
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _INT.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text
