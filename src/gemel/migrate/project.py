"""The files that are migrated together: what they are called as modules, and which file an imported name comes from."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

_IMPORTS = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n#]*)|import[ \t]+([^\n#]*))", re.MULTILINE
)


class Sources:
    """Python files by their paths.

    Args:
        texts: The source of each file.
    """

    def __init__(self, texts: Mapping[Path, str]) -> None:
        self.texts = texts
        self._given = {path.absolute(): path for path in texts}
        self._roots = {path: self._root(path) for path in self._given}
        self._found: dict[tuple[Path, str], tuple[Path, str] | None] = {}
        self._imported: dict[Path, tuple[Path, ...]] = {}

    def root(self, path: Path) -> Path:
        """Return the folder from which Python imports a file: the one around its outermost package."""
        return self._roots[path.absolute()]

    def module_name(self, path: Path) -> str:
        """Return the full name of the module that a file is."""
        whole = path.absolute()
        parts = whole.relative_to(self._roots[whole]).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)

    def find(self, path: Path, full_name: str) -> tuple[Path, str] | None:
        """Find the file that a name comes from.

        Args:
            path: The file that imports the name.
            full_name: The module and the name, such as `package.module.name`, or `.module.name` relative to the file.

        Returns:
            The file, and the rest of the name; None if it is none of these files.
        """
        key = (path, full_name)
        if key not in self._found:
            self._found[key] = self._find(path, full_name)
        return self._found[key]

    def _find(self, path: Path, full_name: str) -> tuple[Path, str] | None:
        whole = path.absolute()
        name = full_name.lstrip(".")
        level = len(full_name) - len(name)
        parts = name.split(".") if name else []
        if level:
            places = [whole.parents[level - 1]] if level <= len(whole.parents) else []
        else:
            root = self._roots[whole]
            places = list(dict.fromkeys([root, *root.parents, *self._roots.values()]))
        for place in places:
            for length in range(len(parts), -1 if level else 0, -1):
                base = place.joinpath(*parts[:length])
                for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
                    if file in self._given and (length or file.name == "__init__.py"):
                        return self._given[file], ".".join(parts[length:])
        return None

    def imported_by(self, path: Path) -> tuple[Path, ...]:
        """Return the files that a file imports."""
        if path not in self._imported:
            self._imported[path] = tuple(self._imports(path))
        return self._imported[path]

    def _imports(self, path: Path) -> Iterator[Path]:
        for module, members, modules in _IMPORTS.findall(self.texts[path]):
            if module:
                words = [word.split()[0] for word in members.strip("()").split(",") if word.split()]
                candidates = [f"{module}{'' if module.endswith('.') else '.'}{word}" for word in words] or [module]
            else:
                candidates = [word.split()[0] for word in modules.split(",") if word.split()]
            for name in candidates:
                found = self.find(path, name)
                if found is not None and found[0] != path:
                    yield found[0]

    def connected(self, paths: Collection[Path], within: Collection[Path]) -> set[Path]:
        """Return the files that import one of some files or are imported by them, or by way of others.

        Args:
            paths: Where to begin.
            within: The files that count.
        """
        found = set(paths)
        edges = {path: set(self.imported_by(path)) for path in within} if found else {}
        while True:
            more = {path for path, imported in edges.items() if imported & found}
            more |= {path for start in found for path in edges.get(start, ()) if path in within}
            if more <= found:
                return found
            found |= more

    def _root(self, path: Path) -> Path:
        folder = path.parent
        while folder / "__init__.py" in self._given or (folder / "__init__.py").is_file():
            if folder.parent == folder:
                break
            folder = folder.parent
        return folder
