"""The server's side of Skills: folders become resources, and entries with digests."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast
from urllib.parse import quote, unquote

from msgspec import Struct

from gemel.errors import DefinitionError, InvalidParams, ProtocolError, ResourceNotFound, shorten
from gemel.extensions.base import Extension
from gemel.extensions.skills.entry import (
    ID,
    MAX_BYTES,
    MAX_FILES,
    check_frontmatter,
    digest_of,
    parse_frontmatter,
)
from gemel.schema.base import CacheableResult, PageParams
from gemel.schema.content import ResourceContents
from gemel.schema.resources import ListResourcesResult, Resource
from gemel.schema.skills import MAIN, GetSkillResult, ListSkillsResult, Skill, SkillFile
from gemel.server.context import Context
from gemel.server.extensions import Method
from gemel.server.features.caching import CacheHint, apply_hint, resource_hint
from gemel.server.features.content import contents_from_bytes, guess_mime_type
from gemel.server.features.files import FOLDER, Files
from gemel.server.features.options import ResourceOptions, SkillOptions, check_options
from gemel.server.features.pagination import paginate

if TYPE_CHECKING:
    from gemel.server.server import Server

logger = logging.getLogger("gemel")

ResultT = TypeVar("ResultT", bound=CacheableResult)

#: How many entries a page of the list has. An entry may be 100 KiB long.
_PAGE = 50
_MARKDOWN = "text/markdown"


class _UriParams(Struct):
    uri: str


class _DirectoryParams(PageParams, kw_only=True):
    uri: str


class _Folder:
    """The folder of one skill. Its files are read when they are asked for, so edits are served at once."""

    def __init__(self, root: str, uri: str, options: SkillOptions) -> None:
        #: The URI of the folder, without a slash at the end.
        self.uri = uri
        self.hint = resource_hint(options.get("ttl"), options.get("scope"))
        if self.hint is not None and (options.get("visible") or options.get("scopes")):
            self.hint = CacheHint(self.hint.ttl, "private")
        self._files = Files(root, uri + "/", hidden=False, limit=MAX_BYTES, mime_type=None)
        #: The entry, and what the folder looked like when it was made.
        self._entry: tuple[object, Skill] | None = None

    @property
    def main(self) -> str:
        """The URI of its SKILL.md."""
        return f"{self.uri}/{MAIN}"

    def paths(self) -> dict[str, tuple[int, int, int]]:
        """All files by their paths below the folder, each with what changes when it is edited."""
        return self._files.walk()

    def entry(self) -> Skill:
        """The entry of the skill as it is now. Raises ValueError for what is not a skill any more."""
        paths = self.paths()
        if self._entry is not None and self._entry[0] == paths:
            return self._entry[1]
        if MAIN not in paths:
            raise ValueError(f"there is no {MAIN} any more")
        resources = [self._described(path) for path in sorted(paths, key=lambda path: (path != MAIN, path))]
        try:
            text = self._files.load(MAIN).decode()
        except UnicodeDecodeError:
            raise ValueError(f"{MAIN} is not UTF-8") from None
        frontmatter = parse_frontmatter(text)
        check_frontmatter(frontmatter, self.uri.rpartition("/")[2])
        skill = Skill(uri=self.main, frontmatter=frontmatter, resources=resources)
        self._entry = paths, skill
        return skill

    def _described(self, path: str) -> SkillFile:
        data = self._files.load(path)
        return SkillFile(uri=f"{self.uri}/{quote(path)}", digest=digest_of(data), size=len(data))

    def contents(self, path: str) -> ResourceContents:
        """One file that the entry lists. Raises ResourceNotFound for any other path."""
        uri = f"{self.uri}/{quote(path)}"
        if not self._files.finds(path):
            raise ResourceNotFound(uri)
        return contents_from_bytes(self._files.load(path), uri, guess_mime_type(path))

    def children(self, path: str) -> list[Resource] | None:
        """What a folder below has in it; None if there is no such folder."""
        prefix = f"{path}/" if path else ""
        below = {each.removeprefix(prefix): state for each, state in self._files.walk(path).items()}
        if not below:
            return None
        children: dict[str, Resource] = {}
        for name, (size, *_) in sorted(below.items()):
            child, slash, _ = name.partition("/")
            uri = f"{self.uri}/{quote(prefix + child)}"
            mime_type = FOLDER if slash else guess_mime_type(child)
            children[child] = Resource(uri=uri, name=child, mime_type=mime_type, size=None if slash else size)
        return list(children.values())


class Skills(Extension):
    """The protocol extension Skills: `server.add_skills("skills/")` adds it, and what is in a folder.

    Clients get the skills with digests of all files from `skills/list` and `skills/get`, the children of a folder from
    `resources/directory/read`, and the files as resources. Those who know nothing of skills see the SKILL.md files as resources.

    Specification: https://modelcontextprotocol.io/seps/2640-skills-extension
    """

    id = ID

    def __init__(self) -> None:
        self._server: Server[Any] | None = None
        #: By the URI of the folder.
        self._folders: dict[str, _Folder] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        """The children of folders can be listed."""
        return {"directoryRead": True}

    def requests(self) -> Iterable[Method]:
        """The three methods of the extension, for any client: clients declare nothing."""
        return (
            Method(name="skills/list", serve=self._list, params=PageParams, open=True, connection=False),
            Method(name="skills/get", serve=self._get, params=_UriParams, open=True, connection=False),
            Method(
                name="resources/directory/read",
                serve=self._directory,
                params=_DirectoryParams,
                open=True,
                connection=False,
            ),
        )

    def attach(self, server: Server[Any]) -> None:
        """Called by `server.add_extension`.

        Args:
            server: The server that the files are added to.
        """
        self._server = server

    def add(
        self, root: str | os.PathLike[str], *, uri: str = "skill://", **options: Unpack[SkillOptions]
    ) -> list[Skill]:
        """Serve a skill, or all skills in a folder, however deep; see `server.add_skills`.

        Args:
            root: A folder with a SKILL.md, or one that has such folders in it.
            uri: What the URIs begin with.
            **options: See SkillOptions.

        Returns:
            The skills.

        Raises:
            DefinitionError: There is no skill, one is not as the Agent Skills specification demands, or its URI is taken.
        """
        check_options("add_skills", options, SkillOptions)
        if self._server is None:
            raise DefinitionError("These skills belong to no server yet: write server.add_skills(…)")
        if "://" not in uri or not uri.endswith("/") or "{" in uri:
            raise DefinitionError(f'add_skills: uri={shorten(uri)!r} must end with a slash, such as "skill://acme/"')
        folders = [_Folder(place, uri + quote(path), options) for place, path in _skill_folders(root)]
        skills = [(folder, _checked(folder)) for folder in folders]
        taken = [folder.uri for folder in folders if folder.uri in self._folders]
        if taken:
            raise DefinitionError(f"There is a skill {taken[0]!r} already: give one of them another uri=")
        for folder, skill in skills:
            self._register(self._server, folder, skill, options)
        return [skill for _, skill in skills]

    def _register(self, server: Server[Any], folder: _Folder, skill: Skill, options: SkillOptions) -> None:
        shared = cast("ResourceOptions", dict(options))
        named: ResourceOptions = {
            "name": skill.name,
            "description": skill.description,
            "mime_type": _MARKDOWN,
            **shared,
        }

        def main() -> ResourceContents:
            return folder.contents(MAIN)

        def file(path: str) -> ResourceContents:
            return folder.contents(path)

        server.resource(folder.main, **named)(main)
        files: ResourceOptions = {
            "name": f"{skill.name} files",
            "description": f"Files of the skill {skill.name}",
            **shared,
        }
        server.resource(folder.uri + "/{+path}", **files)(file)
        self._folders[folder.uri] = folder

    # ---------------------------------------------------------------- methods

    async def _list(self, ctx: Context[Any], params: PageParams) -> ListSkillsResult:
        seen = [folder for folder in self._folders.values() if self._may_see(ctx, folder)]
        page, cursor = paginate([Resource(uri=folder.main, name="") for folder in seen], params.cursor, _PAGE)
        entries = await asyncio.to_thread(lambda: [_current(self._folders[_root(item.uri)]) for item in page])
        result = ListSkillsResult(skills=[entry for entry in entries if entry is not None], next_cursor=cursor)
        return _with_hint(result, *(folder.hint for folder in seen))

    async def _get(self, ctx: Context[Any], params: _UriParams) -> GetSkillResult:
        folder = self._folders.get(_root(params.uri))
        if folder is None or folder.main != params.uri or not self._may_see(ctx, folder):
            raise _no_skill(params.uri)
        entry = await asyncio.to_thread(_current, folder)
        if entry is None:
            raise _no_skill(params.uri)
        return _with_hint(GetSkillResult(skill=entry), folder.hint)

    async def _directory(self, ctx: Context[Any], params: _DirectoryParams) -> ListResourcesResult:
        above = params.uri
        while above and above not in self._folders:
            above = above.rpartition("/")[0]
        folder = self._folders.get(above)
        children: list[Resource] | None = None
        if folder is not None and not params.uri.endswith("/") and self._may_see(ctx, folder):
            path = params.uri[len(above) + 1 :]
            children = await asyncio.to_thread(folder.children, unquote(path))
        if folder is None or children is None:
            raise InvalidParams("This is not a folder of a skill", {"uri": shorten(params.uri)})
        page, cursor = paginate(children, params.cursor, MAX_FILES)
        return _with_hint(ListResourcesResult(resources=page, next_cursor=cursor), folder.hint)

    def _may_see(self, ctx: Context[Any], folder: _Folder) -> bool:
        assert self._server is not None
        return self._server.catalog.sees(ctx, folder.main)


def _root(uri: str) -> str:
    return uri.removesuffix("/" + MAIN)


def _no_skill(uri: str) -> InvalidParams:
    return InvalidParams("There is no skill of this URI: use that of its SKILL.md", {"uri": shorten(uri)})


def _with_hint(result: ResultT, *hints: CacheHint | None) -> ResultT:
    """A result with the shortest and most private of the hints, if all have one."""
    if hints and all(hint is not None for hint in hints):
        apply_hint(min((hint for hint in hints if hint), key=lambda hint: (hint.scope == "public", hint.ttl)), result)
    return result


def _current(folder: _Folder) -> Skill | None:
    """The entry of a skill; None, with a log record, if an edit has made it invalid."""
    try:
        return folder.entry()
    except (OSError, ValueError, ProtocolError) as exc:
        logger.warning("The skill %s is left out: %s", folder.uri, exc)
        return None


def _checked(folder: _Folder) -> Skill:
    try:
        skill = folder.entry()
    except (OSError, ValueError, ProtocolError) as exc:
        raise DefinitionError(f"add_skills: {folder.uri}: {exc}") from None
    files = cast("list[SkillFile]", skill.resources)
    if len(files) > MAX_FILES or sum(file.size for file in files) > MAX_BYTES:
        logger.warning(
            "The skill %s has more than %d files or %d bytes: clients may refuse it", folder.uri, MAX_FILES, MAX_BYTES
        )
    return skill


def _skill_folders(root: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """The folders with a SKILL.md at or below a root, and their paths for the URI. Raises DefinitionError if there is none."""
    top = os.path.realpath(root)
    if not os.path.isdir(top):
        raise DefinitionError(f"add_skills: there is no folder {os.fspath(root)}")
    base = os.path.dirname(top) if os.path.isfile(os.path.join(top, MAIN)) else top
    folders: list[tuple[str, str]] = []
    for place, below, files in os.walk(top):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if MAIN in files:
            folders.append((place, os.path.relpath(place, base).replace(os.sep, "/")))
    if not folders:
        raise DefinitionError(f"add_skills: there is no {MAIN} in {os.fspath(root)} or in a folder below it")
    return folders
