"""The part of the package's metadata that is made when it is built: its page on an index, and the addresses of the project."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PackagePage(MetadataHookInterface):
    """Fills in `readme` and `urls`, which pyproject.toml lists as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the two fields.

        Args:
            metadata: What pyproject.toml says of the project.
        """
        root = Path(self.root)
        tool = runpy.run_path(str(root / "tools" / "package_page.py"))
        version = runpy.run_path(str(root / "src" / "gemel" / "version.py"))["__version__"]
        text = (root / "README.md").read_text(encoding="utf-8")
        address = self.config["address"]
        text = tool["page"](text, address, version, lambda path: (root / path).is_dir())
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = tool["urls"](address, version)
