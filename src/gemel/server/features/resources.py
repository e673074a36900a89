"""Resources and resource templates: registering functions, listing them, reading them.

https://modelcontextprotocol.io/specification/2025-11-25/server/resources
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from gemel.errors import DefinitionError, InvalidArguments, InvalidParams, ResourceNotFound, shorten
from gemel.schema.base import Annotations, PageParams
from gemel.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from gemel.server.composition.namespace import called
from gemel.server.context import Context, served_call
from gemel.server.dependencies import Dependencies, contexts_of, dependencies_of, inspect_handler
from gemel.server.features.caching import apply_to_read, list_scope, resource_hint
from gemel.server.features.completion import RegisteredCompleter, of_choices
from gemel.server.features.content import JSON, ResourceOutput, guess_mime_type, returns_contents
from gemel.server.features.files import leads_out
from gemel.server.features.options import (
    ResourceOptions,
    annotations_of,
    check_options,
    common_members,
    listed,
    make_item,
)
from gemel.server.features.pagination import paginate
from gemel.server.features.uri_templates import Matched, UriTemplate, Variable
from gemel.server.features.visibility import Entries, Item, Visibility, require_scopes
from gemel.server.functions.arguments import Parameter
from gemel.server.functions.signature import Signature
from gemel.server.functions.values import ValueRejected
from gemel.server.lifespan import in_connection
from gemel.server.threads import Threads

logger = logging.getLogger("gemel")

ResourceFunction: TypeAlias = Callable[..., Any]
#: Whether the resource that these arguments name is there; called in a worker thread.
Exists: TypeAlias = Callable[..., bool]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
#: The beginning of a URI whose author wrote no scheme.
_DEFAULT_SCHEME = "resource://"
#: The characters of a URI (RFC 3986).
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*")


class RegisteredResource:
    """A registered resource or template; `listing` is its entry in lists."""

    __slots__ = (
        "_contexts",
        "_dependencies",
        "_hint",
        "_inline",
        "_lists",
        "_match",
        "_output",
        "_screened",
        "function",
        "item",
        "listing",
        "rank",
        "signature",
        "uri",
    )

    def __init__(
        self,
        function: ResourceFunction,
        signature: Signature,
        listing: Resource | ResourceTemplate,
        template: UriTemplate | None,
        output: ResourceOutput,
        dependencies: Dependencies | None,
        options: ResourceOptions,
    ) -> None:
        self.listing = listing
        self.signature = signature
        #: The URI or template, as the author wrote it.
        self.uri = listing.uri if isinstance(listing, Resource) else listing.uri_template
        self.item = make_item("resources", self.uri, listing, options)
        self._contexts = contexts_of(signature.injected)
        self._dependencies = dependencies
        #: The order among templates, most specific first; None for a resource.
        self.rank = template.rank if template is not None else None
        self._match = template.matcher.match if template is not None else None
        self.function = function
        self._output = output
        # Calling a generator function runs none of its code.
        self._inline = signature.is_async or signature.yields or not options.get("blocking", True)
        self._screened = options.get("screen", True)
        if self.item.scopes and options.get("scope") == "public":
            raise DefinitionError(
                f"The resource {shorten(self.uri)!r} needs scopes, so clients must not share its contents with others: "
                'remove scope="public"'
            )
        self._hint = resource_hint(options.get("ttl"), options.get("scope"))
        listed = {variable.name for variable in template.variables if variable.explode} if template is not None else ()
        self._lists = [item for item in signature.parameters if item.wire_name in listed]

    def match(self, uri: str) -> Matched | None:
        """The variables of a URI that matches; None for others, and for values that lead out of a folder."""
        values = self._match(uri) if self._match is not None else None
        if values and self._screened and any(map(leads_out, _texts(values.values()))):
            logger.info("%s: rejected a value that leads out of a folder: %s", self.uri, shorten(uri))
            return None
        return values

    def arguments(self, ctx: Context[Any], values: Matched) -> dict[str, Any]:
        """Typed keyword arguments. Raises InvalidParams, which names the variables whose values don't fit."""
        if not self.signature.parameters:
            return {}
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        for parameter in self._lists:
            value = values.get(parameter.wire_name)
            if isinstance(value, list):
                texts[parameter.wire_name] = _json_list(parameter, value)
        try:
            return self.signature.arguments.from_text(texts)
        except InvalidArguments as exc:
            uri = called(served_call(ctx).layers, "resources", self.uri)
            raise InvalidParams(f"Invalid values for resource {uri!r}: {'; '.join(exc.errors)}") from None

    async def read(
        self, ctx: Context[Any], params: ReadResourceParams, values: Matched, threads: Threads
    ) -> ReadResourceResult:
        """Run the function and turn what it returns into contents."""

        async def run(ctx: Context[Any], arguments: dict[str, Any]) -> ReadResourceResult:
            for name in self._contexts:
                arguments[name] = ctx
            if self._inline:
                value = self.function(**arguments)
            else:
                value = await served_call(ctx).run_in_thread(threads, self.function, arguments)
            if isinstance(value, Awaitable):
                value = await value
            return await self._output.result(ctx, value, params.uri)

        filled = run if self._dependencies is None else self._dependencies.around(run, threads)
        result = await in_connection(ctx, filled, self.arguments(ctx, values))
        if self.item.scopes and result.cache_scope is UNSET:
            result.cache_scope = "private"
        apply_to_read(self._hint, result, params)
        return result


def define_resource(
    uri: str,
    function: ResourceFunction,
    options: ResourceOptions,
    *,
    threads: Threads,
    limit: int,
) -> RegisteredResource:
    """Make a resource from a URI or template, a function and its options. Raises DefinitionError."""
    check_options("@server.resource", options, ResourceOptions)
    template = _template(uri)
    signature = inspect_handler(function, returns_contents, options.get("name"), generators=True)
    if signature.name == "<lambda>":
        raise DefinitionError(f'The resource {uri!r} needs a name: add name="…"')
    _check_parameters(uri, signature, template)
    kind = (
        JSON if signature.output_schema is not None else guess_mime_type(uri if template is None else template.ending)
    )
    shown: dict[str, Any] = {
        "name": signature.name,
        **common_members(signature, options),
        "mime_type": options.get("mime_type") or kind,
        "annotations": annotations_of(Annotations, options.get("annotations"), f"The resource {uri!r}"),
    }
    listing: Resource | ResourceTemplate
    if template is None:
        listing = Resource(uri=uri, size=options.get("size"), **shown)
    elif options.get("size") is not None:
        raise DefinitionError(f"The resource {uri!r} is a template, whose resources differ in size: remove size=")
    else:
        listing = ResourceTemplate(uri_template=uri, **shown)
    listed(listing, f"The resource {uri!r}")
    output = ResourceOutput(signature, options.get("mime_type"), threads, limit)
    dependencies = dependencies_of(signature)
    return RegisteredResource(function, signature, listing, template, output, dependencies, options)


def with_scheme(uri: str) -> str:
    """A URI or template under which its author's text is offered: with a scheme, if it has none."""
    return uri if not uri or _SCHEME.match(uri) else _DEFAULT_SCHEME + uri


def _template(uri: object) -> UriTemplate | None:
    """The template; None for a URI without variables."""
    if not isinstance(uri, str):
        raise DefinitionError('A resource needs a URI: write @server.resource("scheme://path")')
    if _SCHEME.match(uri) is None:
        raise DefinitionError(f"The resource {shorten(uri)!r} needs a scheme, as in weather://{shorten(uri)}")
    if "{" in uri or "}" in uri:
        return UriTemplate(uri)
    if _URI.fullmatch(uri) is None:
        raise DefinitionError(
            f"{shorten(uri)!r} is not a URI: percent-encode characters other than A-Z a-z 0-9 and -._~"
        )
    return None


def _check_parameters(uri: str, signature: Signature, template: UriTemplate | None) -> None:
    """Each variable must have a parameter, each parameter a variable or a default, and both must agree on what is a list."""
    parameters = {item.wire_name: item for item in signature.parameters}
    variables = {item.name: item for item in template.variables} if template is not None else {}
    problems = [
        f"parameter `{name}` has no variable: write {{{name}}} into the URI"
        for name, item in parameters.items()
        if name not in variables and item.required
    ]
    problems += [f"{{{name}}} has no parameter: write `{name}: str`" for name in variables if name not in parameters]
    problems += [_clash(parameters[name], variable) for name, variable in variables.items() if name in parameters]
    problems = [text for text in problems if text]
    if problems:
        raise signature.place.mistake(f"doesn't fit the URI {shorten(uri)!r}: {'; '.join(problems)}")


def _clash(parameter: Parameter, variable: Variable) -> str:
    name, kinds = variable.name, _json_types(parameter.schema)
    if variable.explode and (kinds - {"null"}) != {"array"}:
        return f"{{{name}*}} gives a list: annotate `{name}: list[str]`"
    if not variable.explode and kinds == {"array"}:
        return f"{{{name}}} gives a text, but `{name}` is a list: write {{{name}*}}"
    return ""


def _json_types(schema: Mapping[str, Any]) -> set[str]:
    given = schema.get("type", ())
    types = {given} if isinstance(given, str) else set(given)
    return types.union(*(_json_types(item) for item in schema.get("anyOf", ())))


def _texts(values: Iterable[str | list[str]]) -> Iterable[str]:
    for value in values:
        yield from (value,) if isinstance(value, str) else value


def _json_list(parameter: Parameter, items: list[str]) -> str:
    """A list as JSON text: of strings if that fits, else with the items read as JSON where they are JSON."""
    texts = msgspec.json.encode(items)
    try:
        parameter.type.read(texts)
    except ValueRejected:
        return f"[{','.join(map(_as_json, items))}]"
    return texts.decode()


def _as_json(item: str) -> str:
    try:
        msgspec.json.decode(item)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.json.encode(item).decode()
    return item


#: The longest URI that is matched, in characters.
MAX_URI = 65_536

#: A scheme, and no control characters. Blanks and non-ASCII letters are accepted, since models write them.
_READABLE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[^\x00-\x1f\x7f]*")


_EXPRESSION = re.compile(r"\{([+#./]?)([^{}?&;]*)\}")


def _shape(uri: str) -> str:
    """A template without the names of its variables, which don't matter for what it matches."""
    return _EXPRESSION.sub(lambda found: f"{{{found[1]}{re.sub(r'[^,*]+', 'x', found[2])}}}", uri)


class Resources(Entries[RegisteredResource]):
    """The resources of one server. `limit`, in bytes, is for a resource that a function returns in chunks.

    A URI is looked up among resources first, then matched against templates, the most specific first: those without
    `{+x}` and `{/x*}` before those with, then those with more literal text, then those with fewer variables, then in
    the order of registration. The first match decides: if its values don't fit their types, that is an error (-32602).
    """

    def __init__(
        self,
        threads: Threads,
        visibility: Visibility,
        changed: Callable[[], None],
        completers: dict[str, dict[str, RegisteredCompleter]],
        page_size: int | None,
        limit: int,
    ) -> None:
        super().__init__(visibility, changed)
        self._exists: dict[str, Exists] = {}
        self._threads = threads
        self._completers = completers
        self._page_size = page_size
        self._limit = limit
        self._templates: list[RegisteredResource] = []

    def add(
        self, uri: str, function: ResourceFunction, options: ResourceOptions, *, exists: Exists | None = None
    ) -> RegisteredResource:
        """Register a function under a URI or template.

        `exists` says whether the resource that a template's arguments name can be watched. Raises DefinitionError.
        """
        entry = define_resource(uri, function, options, threads=self._threads, limit=self._limit)
        if self.adopt(uri, entry, exists):
            self._completers[uri] = of_choices(entry.signature)
        return entry

    def adopt(self, uri: str, entry: RegisteredResource, exists: Exists | None) -> bool:
        """Add an entry that is defined already. Returns whether it was added, as `register` does."""
        shape = _shape(uri)
        if same := next((other for other in self.all if other != uri and _shape(other) == shape), None):
            raise DefinitionError(
                f"The resource template {uri!r} matches the same URIs as {same!r}: give it another one, or remove the first"
            )
        replaced = self.all.get(uri)
        if not self.register(uri, entry):
            return False
        self._exists.pop(uri, None)
        if exists is not None:
            self._exists[uri] = exists
        if entry.rank is not None:
            others = (template for template in self._templates if template is not replaced)
            self._templates = sorted([*others, entry], key=lambda template: template.rank or ())
        return True

    def existence(self, uri: str) -> Exists | None:
        """The function that says whether the resource that a template's arguments name can be watched, if there is one."""
        return self._exists.get(uri)

    def remove(self, uri: str, /) -> None:
        """Remove a resource or template. Raises KeyError if there is none of this URI."""
        entry = self.entry(uri)
        self._exists.pop(uri, None)
        self._completers.pop(uri, None)
        self._templates = [template for template in self._templates if template is not entry]
        super().remove(uri)

    async def list(self, ctx: Context[Any], params: PageParams) -> ListResourcesResult:
        """`resources/list`."""
        page, cursor = paginate(self.listings(ctx, Resource), params.cursor, self._page_size)
        scope = list_scope(bool(self.restricted))
        return ListResourcesResult(resources=page, next_cursor=cursor, cache_scope=scope)

    async def list_templates(self, ctx: Context[Any], params: PageParams) -> ListResourceTemplatesResult:
        """`resources/templates/list`."""
        page, cursor = paginate(self.listings(ctx, ResourceTemplate), params.cursor, self._page_size)
        scope = list_scope(bool(self.restricted))
        return ListResourceTemplatesResult(resource_templates=page, next_cursor=cursor, cache_scope=scope)

    async def read(self, ctx: Context[Any], params: ReadResourceParams) -> ReadResourceResult:
        """`resources/read`. Raises ResourceNotFound for a URI that names nothing; its code depends on the era."""
        match = self._find(ctx, params.uri)
        if match is None:
            raise ResourceNotFound(params.uri)
        entry, values = match
        require_scopes(ctx, entry.item.scopes)
        return await entry.read(ctx, params, values, self._threads)

    async def known(self, ctx: Context[Any], uri: str) -> bool:
        """Whether a URI names a resource of this server, so that it may be watched unless another function decides."""
        try:
            match = self._find(ctx, uri)
            if match is None:
                return False
            entry, values = match
            arguments = entry.arguments(ctx, values)
        except InvalidParams:
            return False
        exists = self._exists.get(entry.uri)
        return exists is None or bool(await self._threads.run(exists, arguments, served_call(ctx).call))

    def has(self, ctx: Context[Any], uri: str) -> bool:
        """Whether a URI names something here, for this caller. Raises InvalidParams for what isn't a URI."""
        return self._find(ctx, uri) is not None

    def item(self, ctx: Context[Any], uri: str) -> Item | None:
        """The resource or template that a URI names, if this caller sees it."""
        try:
            match = self._find(ctx, uri)
        except InvalidParams:
            return None
        return None if match is None else match[0].item

    def registers(self, uri: str) -> bool:
        """Whether a URI names a resource here, whether or not a caller sees it."""
        entry = self.all.get(uri)
        return (entry is not None and entry.rank is None) or any(
            template.match(uri) is not None for template in self._templates
        )

    def _find(self, ctx: Context[Any], uri: str) -> tuple[RegisteredResource, Matched] | None:
        """The resource that a URI names, with the values of its variables. Raises InvalidParams for what isn't a URI."""
        entry = self.find(ctx, uri)
        if entry is not None and entry.rank is None:
            return entry, {}
        if len(uri) > MAX_URI or _READABLE_URI.fullmatch(uri) is None:
            problem = f"longer than {MAX_URI} characters" if len(uri) > MAX_URI else "no scheme, or control characters"
            raise InvalidParams(f"Invalid URI: {problem}", {"uri": shorten(uri, 2048)})
        for entry in self._templates:
            values = entry.match(uri)
            if values is not None and self.find(ctx, entry.uri) is not None:
                return entry, values
        return None
