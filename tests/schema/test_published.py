"""Our structs and our data on revisions against the table of the published schemas, member by member."""

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from msgspec import NODEFAULT, Raw, UnsetType, structs

from gemel.protocol.revisions.adapt import known_in
from gemel.schema.methods import METHODS, method_in
from gemel.schema.revisions import ALWAYS, FORM_WORDS, MEMBERS, META_KEYS, SCHEMA_WORDS, TYPES, within
from tests.schema.instances import MODELS
from tests.support import REVISIONS, Model
from tests.wire_table import Kind, alternatives, read_table

#: Our names for published types; what isn't here is named alike.
PUBLISHED: Mapping[str, tuple[str, ...]] = {
    "ResourceContents": ("TextResourceContents", "BlobResourceContents"),
    "NotificationParams": ("EmptyNotificationParams",),
    "InitializedParams": ("EmptyNotificationParams",),
    "RequestMeta": ("RequestMeta", "NotificationMeta"),
}
#: What other types build upon, and a question before its params are typed: nothing of that name is published.
ABSTRACT = frozenset({"Result", "CacheableResult", "Page", "InputRequest"})
#: Members that our structs leave to the kernel, the `_meta` of a request, and to the extension of tasks.
LEFT_OUT = frozenset(
    {("params", "_meta"), ("params", "task"), ("InitializedParams", "_meta"), ("SubscriptionFilter", "taskIds")}
)
#: Members that are required on the wire and have a default here: the era, or a subscription, writes them.
WRITTEN_LATE = frozenset({"resultType", "ttlMs", "cacheScope"})
WRITTEN_BY_A_SUBSCRIPTION = ("ListenResult", "_meta")
#: A cancellation without a request is possible in one revision; we read none, since it cancels nothing.
STRICTER = frozenset({("CancelledParams", "requestId")})

CONCRETE = sorted(MODELS.keys() - ABSTRACT)


def published(name: str) -> list[Kind]:
    return [read_table().kinds[found] for found in PUBLISHED.get(name, (name,))]


def when(name: str) -> frozenset[str]:
    """The revisions that published a type."""
    return frozenset().union(*(found.window for found in published(name)))


def wire_members(kind: type[Model]) -> dict[str, structs.FieldInfo]:
    return {field.encode_name: field for field in structs.fields(kind)}


def left_out(name: str, member: str) -> bool:
    return (name, member) in LEFT_OUT or (name.endswith("Params") and ("params", member) in LEFT_OUT)


def is_tag(kind: type[Model], member: str) -> bool:
    return member == kind.__struct_config__.tag_field


def test_structs_have_the_members_that_were_ever_published_and_no_others() -> None:
    """NAME-02, RES-02, PRM-02."""
    for name in CONCRETE:
        kind = MODELS[name]
        ours = set(wire_members(kind))
        theirs = {member.name for found in published(name) for member in found.members}
        theirs = {
            member for member in theirs if not is_tag(kind, member) and (member in ours or not left_out(name, member))
        }
        never = {
            member
            for member, field in wire_members(kind).items()
            if not any(known_in(kind, field.name, r) for r in when(name))
        }
        assert ours - never == theirs, name


@pytest.mark.parametrize("name", [name for name in CONCRETE if MODELS[name].__struct_config__.tag is not None])
def test_a_tag_is_the_published_type(name: str) -> None:
    config = MODELS[name].__struct_config__
    (tagged,) = [member for member in published(name)[0].members if member.name == config.tag_field]
    assert tagged.expression == f"'{config.tag}'"


def test_what_is_required_wherever_it_exists_is_required_here() -> None:
    for name in CONCRETE:
        kinds = published(name)
        for member, field in wire_members(MODELS[name]).items():
            if member in WRITTEN_LATE or (name, member) in (*STRICTER, WRITTEN_BY_A_SUBSCRIPTION):
                continue
            rows = [row for found in kinds for row in found.members if row.name == member]
            required = bool(rows) and all(not row.optional for row in rows)
            in_all = all(any(row.name == member for row in found.members) for found in kinds)
            everywhere = all(found.window_of(member) == found.window for found in kinds)
            assert (field.default is NODEFAULT) == (required and in_all and everywhere), (name, member)


def test_members_are_known_in_the_revisions_that_published_them() -> None:
    """Table 4.C, NAME-02, TOOL-05: the data that shaping goes by is what the five schemas say."""
    for name in CONCRETE:
        if name != "InitializedParams":  # notifications without params of their own share one published type
            assert {revision for revision in REVISIONS if within(revision, TYPES.get(name, ALWAYS))} == when(name), name
        for member, field in wire_members(MODELS[name]).items():
            theirs = frozenset().union(*(found.window_of(member) for found in published(name)))
            assert {revision for revision in when(name) if known_in(MODELS[name], field.name, revision)} == theirs, (
                name,
                member,
            )


def expressions(annotation: Any) -> set[str]:
    """An annotation in the words of the table, and more than one where the table may use any of them."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return {found for part in parts if part not in (types.NoneType, UnsetType) for found in expressions(part)}
    if origin is Literal:
        return {f"'{part}'" for part in parts}
    if origin is list:
        return {"[" + "|".join(sorted(expressions(parts[0]))) + "]"}
    if origin is dict:
        return {"object"} if parts[1] is Any else {"{" + "|".join(sorted(expressions(parts[1]))) + "}"}
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return set(PUBLISHED.get(annotation.__name__, (annotation.__name__,)))
    return {_PLAIN[annotation]}


_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any", Raw: "any"}
#: Words of the table that are a string, an object or a number to us.
_WIDER: Mapping[str, str] = {
    "uri": "string",
    "base64": "string",
    "number(0..1)": "number",
    "integer(0..)": "integer",
    "{object}": "object",
    "InputSchema": "object",
    "OutputSchema": "object",
    "RequestedSchema": "object",
    "ToolExecution": "object",
    "ResultMeta": "object",
    "ListenResultMeta": "object",
    "NotificationMeta": "object",
}


def widened(expression: str) -> set[str]:
    found: set[str] = set()
    for option in alternatives(expression):
        if option in read_table().aliases:
            found |= widened(read_table().aliases[option])
        elif option == "id":
            found |= {"string", "integer"}
        elif option.startswith("["):
            found.add("[" + "|".join(sorted(widened(option[1:].partition("]")[0]))) + "]")
        else:
            found.add(_WIDER.get(option, option))
    return found


#: Members that are kept as they came: any object for a map, any JSON text for what is read later.
OPAQUE = frozenset(
    {
        "CallToolParams.arguments",
        "CallToolParams.inputResponses",
        "ClientCapabilities.extensions",
        "ElicitResult.content",
        "GetPromptParams.inputResponses",
        "InputRequiredResult.inputRequests",
        "ReadResourceParams.inputResponses",
        "RequestMeta.io.modelcontextprotocol/clientCapabilities",
        "RequestMeta.io.modelcontextprotocol/clientInfo",
        "RequestMeta.io.modelcontextprotocol/logLevel",
        "RequestMeta.io.modelcontextprotocol/protocolVersion",
        "ServerCapabilities.extensions",
    }
)
#: A boolean is a schema too, read from whoever sends one.
LOOSER = {"Tool.outputSchema": {"boolean"}}


def test_members_have_the_newest_published_type() -> None:
    """Of several published types the newest counts; literals are compared value by value."""
    for name in CONCRETE:
        rows = [row for found in published(name) for row in found.members]
        for member, field in wire_members(MODELS[name]).items():
            said = [row for row in rows if row.name == member]
            if f"{name}.{member}" in OPAQUE or not said:
                continue
            newest = max(said, key=lambda row: max(row.window))
            found = expressions(field.type) - LOOSER.get(f"{name}.{member}", set())
            said_so = (
                {"string"} if member == "resultType" else widened(newest.expression)
            )  # an extension has values of its own
            assert found == said_so, (name, member)


def test_the_data_on_revisions_names_members_that_exist() -> None:
    structs_by_name = {base.__name__: base for kind in MODELS.values() for base in kind.__mro__}
    assert set(TYPES) <= set(structs_by_name)
    for name, members in MEMBERS.items():
        assert set(members) <= {field.name for field in structs.fields(structs_by_name[name])}, name


def test_types_without_a_published_name_belong_to_the_revisions_of_what_holds_them() -> None:
    initialized = METHODS["notifications/initialized"]
    assert TYPES["InitializedParams"] == (initialized.first, initialized.last)
    assert TYPES["InputRequest"] == TYPES["InputRequiredResult"]


def test_every_method_has_its_published_revisions_sender_and_types() -> None:
    """What a revision doesn't know isn't served there; nothing published is missing. Tasks are an extension here."""
    for revision in REVISIONS:
        core = [row for row in read_table().rows if "tasks" not in row.method.split("/")]
        rows = {(row.method, row.sender): row for row in core if revision in row.window}
        assert {name for name in METHODS if method_in(name, revision)} - ASKED == {name for name, _ in rows} - ASKED
        for (name, sender), row in rows.items():
            ours = METHODS[name]
            assert ours.sender in (sender, "both")
            assert row.params in ("ElicitParams", *PUBLISHED.get(ours.params.__name__, (ours.params.__name__,)))
            result = None if ours.result is None else ours.result.__name__
            published_result, *others = (row.result or "").split("|")
            assert published_result == (result or "")
            assert ours.may_ask or set(others) <= {"CreateTaskResult"}


#: In the stateless revision these are no requests but what an `input_required` result asks for.
ASKED = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})


def test_only_the_client_is_told_of_progress_in_the_stateless_revision() -> None:
    """One row serves both directions, so the era keeps them apart."""
    rows = [row for row in read_table().rows if row.method == "notifications/progress"]
    assert [row.sender for row in rows if REVISIONS[-1] in row.window] == ["server"]


def test_the_words_of_a_form_are_the_published_ones() -> None:
    """ELIC-06, ELIC-07, ELIC-08."""
    kinds = [read_table().kinds[name] for name in alternatives(read_table().aliases["FieldSchema"])]
    for revision in REVISIONS[2:]:
        theirs: dict[str, set[str]] = {}
        for kind in kinds:
            members = kind.in_revision(revision)
            for said in alternatives(members["type"].expression) if members else ():
                theirs.setdefault(said.strip("'"), set()).update(members)
        assert theirs.keys() <= FORM_WORDS.keys()
        for said, words in FORM_WORDS.items():
            ours = {word for word, window in words.items() if within(revision, window)}
            assert ours == theirs.get(said, set()), said


def test_reserved_keys_and_schema_words_came_when_the_table_says() -> None:
    """META-05, TOOL-05."""
    kinds = read_table().kinds
    for key, window in META_KEYS.items():
        theirs = kinds["ResultMeta"].window_of(key) | kinds["NotificationMeta"].window_of(key)
        assert theirs == {revision for revision in REVISIONS if within(revision, window)}
    for word, window in SCHEMA_WORDS.items():
        assert kinds["InputSchema"].window_of(word) == {revision for revision in REVISIONS if within(revision, window)}
