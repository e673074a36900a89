"""What the page of the package on an index shows: README.md with absolute links, and the addresses of the project.

All of it follows from one setting in pyproject.toml, `address` in `[tool.hatch.metadata.hooks.custom]`: where the repository is
hosted. It is empty until there is one; links to files of the repository are plain text then. `hatch_build.py` asks this file
whenever the package is built, so it imports only the standard library.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_FENCED = re.compile(r"^(?P<fence>`{3,})[^`\n]*\n.*?^(?P=fence)$\n?", re.DOTALL | re.MULTILINE)
_IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<path>[^)\s:#]+)\)")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")
#: What tools and tests look for in documents: `<!-- printed: figures -->`.
_COMMENT = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)


def project_address() -> str:
    """Return where the repository is hosted, without a slash at its end; empty if it is nowhere."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["address"])


def security_form(address: str) -> str:
    """Return the address of the form for private reports of vulnerabilities; empty if there is none."""
    return address and f"{address}/security/advisories/new"


def urls(address: str, version: str) -> dict[str, str]:
    """Return `[project.urls]`, none if the repository is hosted nowhere.

    Args:
        address: Where the repository is hosted.
        version: The version of the package.
    """
    if not address:
        return {}
    return {
        "Homepage": address,
        "Documentation": f"{address}/tree/v{version}/docs",
        "Source": f"{address}/tree/v{version}",
        "Changelog": f"{address}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Security": security_form(address),
    }


def page(text: str, address: str, version: str, is_folder: Callable[[str], bool]) -> str:
    """Return a document at the top of the repository as it is shown elsewhere: README.md on the page of the package.

    Args:
        text: The document, with links relative to the repository.
        address: Where the repository is hosted.
        version: The version of the package; links lead to its tag.
        is_folder: Whether a path in the repository is a folder.

    Returns:
        The text with absolute links. Without an address links become their texts, and pictures are left out.
    """

    def image(found: re.Match[str]) -> str:
        return f"![{found['text']}]({address}/raw/v{version}/{found['path']})" if address else ""

    def link(found: re.Match[str]) -> str:
        if not address:
            return found["text"]
        kind = "tree" if is_folder(found["path"]) else "blob"
        return f"[{found['text']}]({address}/{kind}/v{version}/{found['path']}{found['anchor'] or ''})"

    def prose(part: str) -> str:
        return _LINK.sub(link, _IMAGE.sub(image, _COMMENT.sub("", part)))

    parts, end = [], 0
    for block in _FENCED.finditer(text):
        parts += [prose(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, prose(text[end:])])
