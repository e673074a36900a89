"""What fits the schema of a tool passes the check of types and arrives as it was written; what doesn't fit is told."""

from __future__ import annotations

import json
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from gemel import Client, Server, ToolError
from gemel.code import CodeMode
from gemel.code.catalogue import Catalogue, ModuleTool, OfferedTool
from gemel.code.sandbox import ScriptLimits, ScriptPlaces, run_script
from gemel.policies.request import NO_HINTS
from gemel.schema.content import TextContent
from gemel.schema.tools import CallToolResult, ListToolsResult, Tool
from tests.code.test_mode import run
from tests.source import ROOT

pytest.importorskip("pydantic_monty")

LISTS: dict[str, list[dict[str, Any]]] = json.loads((ROOT / "benchmarks" / "tool_lists.json").read_text())


class Inner(TypedDict):
    count: NotRequired[int]


class Outer(TypedDict):
    inner: Inner
    kind: NotRequired[Literal["x", "y"]]


server: Server[Any] = Server("things", middleware=[CodeMode()])


class Row(TypedDict):
    title: str
    labels: list[str]
    owner: NotRequired[str]


@server.tool
def rows(limit: int = 2) -> list[Row]:
    """Rows, of which each second one has an owner."""
    more: list[dict[str, str]] = [{}, {"owner": "ann"}]
    return [Row(title=f"row {n}", labels=[], **more[n % 2]) for n in range(limit)]  # type: ignore[typeddict-item]  # one key


@server.tool
def average(values: list[float], named: dict[str, str | int] | None = None) -> float:
    return sum(values) / len(values)


@server.tool
def put(thing: Outer, more: list[Inner] | None = None) -> Outer:
    return thing


@pytest.mark.parametrize(
    "call",
    [
        "await put(thing={'inner': {}})",
        "await put(thing={'inner': {'count': 1}, 'kind': 'x'}, more=[{'count': i} for i in range(3)])",
        "await put(thing=await put(thing={'inner': {}}))",
        "(await put(thing={'inner': {'count': 1}}))['inner'].get('count')",
    ],
)
async def test_objects_are_given_as_they_are_written(call: str) -> None:
    async with Client(server) as client:
        await run(client, f"from things import put\n{call}")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("await put(thing={})", "inner"),
        ("await put(thing={'inner': {'number': 1}})", "number"),
        ("await put(thing={'inner': {'count': 'one'}})", "count"),
        ("await put(thing={'inner': {}, 'kind': 'z'})", "kind"),
        ("await put(thing={'inner': {}}, more=[{'count': 1}, {'counts': 1}])", "counts"),
        ("(await put(thing={'inner': {}}))['outer']", "outer"),
    ],
)
async def test_members_of_objects_are_checked(call: str, told: str) -> None:
    async with Client(server) as client:
        with pytest.raises(ToolError, match=rf"The script was not run:[\s\S]*{told}"):
            await run(client, f"from things import put\n{call}")


@pytest.mark.parametrize(
    "code",
    [
        "thing = {'inner': {'count': 1}}\nawait put(thing=thing)",
        "inner = {'count': 1}\nawait put(thing={'inner': inner, 'kind': 'x'})",
        "thing = {}\nthing['inner'] = {'count': 1}\nthing['kind'] = 'y'\nawait put(thing=thing)",
        "more = [{'count': 1}, {}]\nawait put(thing={'inner': {}}, more=more)",
        "one = {'count': 1}\nawait put(thing={'inner': {}}, more=[one, {'count': 2}])",
        "for inner in [{'count': 1}, {'count': 2}]:\n    await put(thing={'inner': inner})",
        "for kind in {'x': 1, 'y': 2}:\n    await put(thing={'inner': {}, 'kind': kind})",
        "arguments = {'thing': {'inner': {}}, 'more': [{'count': 1}]}\nawait put(**arguments)",
        "def made(count: int) -> dict:\n    return {'inner': {'count': count}}\nawait put(thing=made(3))",
        "await put(thing=dict(inner={}))",
    ],
)
async def test_dictionaries_in_variables_are_given_as_they_are(code: str) -> None:
    async with Client(server) as client:
        await run(client, f"from things import put\n{code}")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("thing = 'a text'\nawait put(thing=thing)", "was not run:[\\s\\S]*Expected `OuterDict`"),
        ("thing = {'inner': {}}\nawait put(things=thing)", "was not run:[\\s\\S]*Argument `things` does not match"),
        ("inner = {'count': 1}\nawait put(thing={'inner': inner, 'kind': 'z'})", "was not run:[\\s\\S]*kind"),
        ("inner = {'count': 1}\nawait put(thing={'inners': inner})", "was not run:[\\s\\S]*Unknown key"),
        ("thing = {'inner': {'count': 'one'}}\nawait put(thing=thing)", r"expected integer, got string \"one\""),
        (
            "arguments = {'thing': {'inner': {}}, 'other': 1}\nawait put(**arguments)",
            "no parameter 'other'; there are: thing, more",
        ),
    ],
)
async def test_what_is_wrong_for_certain_is_told(code: str, told: str) -> None:
    async with Client(server) as client:
        with pytest.raises(ToolError, match=told):
            await run(client, f"from things import put\n{code}")


async def test_a_mistake_is_told_once() -> None:
    async with Client(server) as client:
        with pytest.raises(ToolError) as raised:
            await run(
                client,
                "from things import put\narguments = {'thing': 1, 'more': 'x'}\nawait put(**arguments, kind=5, kinds=6)",
            )
    lines = str(raised.value).splitlines()[1:]
    assert len(lines) == len(set(lines)) == 2


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("found: list[dict] = await rows()\nfound[0]['title']", "row 0"),
        ("one: dict[str, Any] = (await rows())[0]\none['title']", "row 0"),
        ("def title(one: dict) -> str:\n    return one['title']\ntitle((await rows())[1])", "row 1"),
        ("async def get(n: int) -> list[dict]:\n    return await rows(limit=n)\nlen(await get(3))", "3"),
        ("from things import RowDict\nfound: list[RowDict] = await rows()\nlen(found)", "2"),
        ("from things import RowDict\nRowDict(title='a', labels=[])['title']", "a"),
        ("found = await rows()\nfor one in found:\n    one['size'] = len(one['labels'])\nfound[0]['size']", "0"),
        ("one = (await rows())[0]\none['labels'] = ', '.join(one['labels'])\none.pop('title')\nlen(one)", "1"),
        ("best = None\nfor one in await rows():\n    best = one\nbest['title']", "row 1"),
        ("(await rows())[1].get('owner').upper()", "ANN"),
        ("await rows(limit=(await rows())[0].get('size', 1))\n(await rows())[1].get('owner') + '!'", "ann!"),
        ("await put(thing={'inner': {}}, more=(await put(thing={'inner': {}})).get('more'))\n'put'", "put"),
        ("', '.join(one.get('owner') for one in await rows() if 'owner' in one)", "ann"),
        ("values = [1, 2]\nawait average(values=values)", "1.5"),
        ("named = {'a': 'b'}\nawait average(values=[1], named=named)", "1.0"),
        ("list(map(lambda one: one['title'], filter(None, await rows())))[1]", "row 1"),
        ("found: list[dict] = []\nfound += await rows()\nfound = found + await rows()\nlen(found)", "4"),
        ("one = (await rows())[0]\n', '.join(key for key in sorted(one) if one[key])", "title"),
        ("one = (await rows())[0]\none |= {'title': 'other'}\none['title']", "other"),
        ("owners: list[str] = [one.get('owner') for one in await rows()]\nowners[1]", "ann"),
        ("seen = {'a': {'n': 0, 'in': []}}\nseen['a']['n'] += 1\nseen['a']['in'].append('x')\nseen['a']['n']", "1"),
        ("if await rows():\n    return 'rows'\nreturn 'none'", "rows"),
        ("len(await rows(limit=None))", "2"),
        ("'gather(return_exceptions=True), json.dumps(1, default=str), datetime.now()'[:6]", "gather"),
        ("class One:\n    def now(self) -> int:\n        return 3\nOne().now()", "3"),
        ("import math\nsorted([2.5, 1.5], key=math.floor)[0]", "1.5"),
        ("try:\n    getattr(1, 'no')\nexcept (ImportError, AttributeError):\n    told = format(1, '>3')\ntold", "  1"),
    ],
)
async def test_what_may_be_right_is_run(code: str, value: str) -> None:
    async with Client(server) as client:
        assert await run(client, f"from typing import Any\nfrom things import average, put, rows\n{code}") == value


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("rows()[0]['title']", "Write `await` before each call"),
        ("for one in rows():\n    print(one)", "Write `await` before each call"),
        ("(await rows())[0]['name']", r"Unknown key \"name\"[\s\S]*The keys of `RowDict` are labels, owner, title"),
        ("(await rows())[0].title()", "What tools return are dictionaries: write `one\\['key'\\]`"),
        ("(await rows())['title']", 'key of type `Literal\\["title"\\]` on object of type `list\\[RowDict\\]`'),
        ("await average(values=None)", "Expected `list\\[float\\]`, found `None`"),
        ("await average(values=['a'])", "Expected `list\\[float\\]`"),
        ("await things.rows()", "Did you mean `import things`"),
        ("from things import import\n1", "has a `_` behind it"),
        ("import asyncio\nawait asyncio.gather([rows()])", r"those of a list by `gather\(\*calls\)`"),
        ("try:\n    await rows()\nexcept ToolError:\n    pass", "A tool that fails raises RuntimeError"),
        ("open('notes.txt').read()", "There are no files"),
        ("class Missing(Exception):\n    pass", "This Python has no yield, async for"),
        ("async for one in rows():\n    pass", "This Python has no yield, async for"),
        ("import datetime\nawait put(thing=datetime.date(2026, 1, 2))", r"found `date`[\s\S]*write `\.isoformat\(\)`"),
    ],
)
async def test_a_mistake_is_told_with_what_to_do_before_anything_runs(code: str, told: str) -> None:
    async with Client(server) as client:
        with pytest.raises(ToolError, match=rf"The script was not run:[\s\S]*{told}"):
            await run(client, f"from things import average, put, rows\n{code}")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("await asyncio.gather(rows(), return_exceptions=True)", "gather has no return_exceptions: catch RuntimeError"),
        ("json.dumps(found, indent=2, default=str)", "json.dumps has no default: write texts"),
        (
            "next((one for one in found if one['title']), None)",
            r"is a list: write `next\(iter\(one for one in …\), None\)`",
        ),
        ("counts = {'a': 1}\nsorted(counts, reverse=True, key=counts.get)", r"write `lambda one: ….get\(one\)`"),
        ("list(map(str.upper, ['a']))", r"write `lambda one: ….upper\(one\)`"),
        ("re.sub('a', lambda found: 'b', 'a')", "re.sub takes no function"),
        ("datetime.now().isoformat()", "datetime.now: scripts have no clock"),
        ("datetime.date.today()", "datetime.date.today: scripts have no clock"),
        ("await asyncio.sleep(1)", "asyncio.sleep: scripts have no clock"),
    ],
)
async def test_what_the_interpreter_has_not_is_told_before_anything_runs(line: str, told: str) -> None:
    async with Client(server) as client:
        with pytest.raises(ToolError, match=rf"The script was not run:\nline \d+:\d+: [\s\S]*{told}"):
            await run(
                client, f"import asyncio, datetime, json, re\nfrom things import rows\nfound = await rows()\n{line}"
            )


def sample(schema: Any, root: dict[str, Any]) -> Any:
    """A value that fits a schema."""
    if not isinstance(schema, dict):
        return 1
    if "$ref" in schema:
        found: Any = root
        for part in schema["$ref"].split("/")[1:]:
            found = found[part]
        return sample(found, root)
    for word in ("const", "enum"):
        if word in schema:
            return schema[word] if word == "const" else schema[word][0]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return sample(schema[word][0], root)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        return {name: sample(inner, root) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [sample(schema.get("items"), root)]
    return {"string": "text", "integer": 3, "number": 1.5, "boolean": True}.get(kind or "string")


@pytest.mark.parametrize("name", LISTS)
async def test_tools_of_published_servers_can_be_called(name: str) -> None:
    tools = [Tool(name=one["name"], input_schema=one["inputSchema"]) for one in LISTS[name]]
    catalogue = Catalogue((OfferedTool(name, tool.name, tool, hints=NO_HINTS) for tool in tools), {})
    given: dict[str, Any] = {}

    def function(tool: ModuleTool) -> Any:
        async def call(**arguments: object) -> None:
            given[tool.path] = arguments

        return call

    expected, lines = {}, []
    for one in catalogue.tools:
        values = sample(one.offered.tool.input_schema, one.offered.tool.input_schema)
        expected[one.path] = {argument: values[wire] for argument, wire in one.function.wires.items()}
        arguments = ", ".join(f"{argument}={value!r}" for argument, value in expected[one.path].items())
        lines += [f"from {one.module} import {one.function.name} as called", f"await called({arguments})"]
    modules = catalogue.script_modules(function, read_only=False)
    await run_script("\n".join(lines), modules, ScriptPlaces(ScriptLimits()))
    assert given == expected


async def received(schema: dict[str, Any], call: str) -> Any:
    """What a server elsewhere gets of a call of its tool `take`, which has this schema."""

    async def foreign(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/list":
            return ListToolsResult(tools=[Tool(name="take", input_schema=schema)])
        if ctx.method == "tools/call":
            return CallToolResult(content=[TextContent(text=json.dumps(ctx.decoded_params.get("arguments")))])
        return await call_next(ctx)

    gateway: Server[Any] = Server("gateway", middleware=[CodeMode()])
    gateway.mount(Server.from_client(Client(Server("foreign", middleware=[foreign]))), "foreign")
    async with Client(gateway) as client:
        return json.loads(await run(client, f"from foreign import take\n{call}"))


@pytest.mark.parametrize("rest", [True, {}, {"type": "integer"}])
async def test_arguments_that_a_schema_allows_without_their_names_arrive(rest: Any) -> None:
    schema = {"type": "object", "properties": {"others": {"type": "string"}}, "additionalProperties": rest}
    assert await received(schema, "await take(others='a', size=1)") == {"others": "a", "size": 1}
    assert await received(schema, "await take(**{'a-b': 1, 'class': 2})") == {"a-b": 1, "class": 2}
    assert await received({"type": "object", "additionalProperties": rest}, "await take(size=1)") == {"size": 1}


async def test_arguments_that_no_schema_allows_are_told() -> None:
    for rest in ({"additionalProperties": False}, {}):
        with pytest.raises(ToolError, match="Argument `size` does not match any known parameter"):
            await received({"type": "object", "properties": {"a": {"type": "string"}}, **rest}, "await take(size=1)")
    with pytest.raises(ToolError, match="Expected `int`"):
        await received({"type": "object", "additionalProperties": {"type": "integer"}}, "await take(size='large')")


async def test_none_leaves_out_an_argument_that_can_not_be_null() -> None:
    schema = {
        "type": "object",
        "properties": {
            "page": {"type": "string"},
            "parent": {"type": ["string", "null"]},
            "anything": {},
            "needed": {"type": ["string", "null"]},
        },
        "required": ["needed"],
    }
    call = "page = None\nawait take(page=page, parent=None, anything=None, needed=None)"
    assert await received(schema, call) == {"parent": None, "anything": None, "needed": None}
    assert await received(schema, "await take(page=None, needed='a')") == {"needed": "a"}


NAMES = ["class", "self", "from", "a-b", "a b", "1st", "", "call", "given", "name", "é", "async", "__init__", "$ref"]


async def test_arguments_of_any_name_arrive() -> None:
    async def foreign(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/list":
            strange = {"type": "object", "properties": {name: {"type": "string"} for name in NAMES}}
            return ListToolsResult(
                tools=[Tool(name="strange", input_schema=strange), Tool(name="bare", input_schema={"type": "object"})]
            )
        if ctx.method == "tools/call":
            return CallToolResult(content=[TextContent(text=json.dumps(ctx.decoded_params.get("arguments")))])
        return await call_next(ctx)

    gateway: Server[Any] = Server("gateway", middleware=[CodeMode()])
    gateway.mount(Server.from_client(Client(Server("foreign", middleware=[foreign]))), "foreign")
    async with Client(gateway) as client:
        signature = (await client.call_tool("search_tools", {"names": ["foreign.strange"]})).text
        arguments = signature.split("*, ")[1].split(") ->")[0].split(": str = ..., ")
        arguments[-1] = arguments[-1].removesuffix(": str = ...")
        call = ", ".join(f"{argument}='{argument}'" for argument in arguments)
        got = json.loads(await run(client, f"from foreign import strange\nawait strange({call})"))
        assert got == dict(zip(NAMES, arguments, strict=True))
        assert await run(client, "from foreign import bare\nawait bare()") in ("{}", "null")
