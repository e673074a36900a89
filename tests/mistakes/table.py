"""The mistakes: what somebody wrote, and the one line that tells what is wrong and what to write instead."""

from typing import NamedTuple


class Mistake(NamedTuple):
    """A mistake: a small program, run after `PREAMBLE`, with an async `main` where it needs a loop."""

    title: str
    program: str
    line: str


PREAMBLE = """\
import asyncio
from gemel import *
from typing import Any
s = Server('s')
"""

MISTAKES = (
    Mistake(
        "a parameter without annotation",
        "@s.tool\ndef f(x):\n    return x\n",
        "f(): parameter `x`: has no annotation, so there is no schema for it; write e.g. `x: str`",
    ),
    Mistake(
        "*args",
        "@s.tool\ndef f(*x: int):\n    return x\n",
        "f(): parameter `x`: `*x` has no schema; name each parameter, or take a `x: list[str]`",
    ),
    Mistake(
        "**kwargs",
        "@s.tool\ndef f(**x: int):\n    return x\n",
        "f(): parameter `x`: `**x` has no schema; name each parameter, or take a `x: dict[str, Any]`",
    ),
    Mistake(
        "a lambda without a name",
        "s.tool(lambda: 1)\n",
        'A tool needs a name: write server.tool("name")(function)',
    ),
    Mistake(
        "a tool twice",
        "@s.tool\ndef f() -> int: return 1\n@s.tool\ndef f() -> int: return 2\n",
        "There is a tool 'f' already: give this one another name, remove the first, or say which counts: "
        'Server(on_duplicate="replace") or "keep"',
    ),
    Mistake(
        "a tool name with a blank",
        "@s.tool('my tool')\ndef f() -> int: return 1\n",
        "Tool name 'my tool' is not allowed: use 1 to 128 of A-Z a-z 0-9 _ - . (no blanks)",
    ),
    Mistake(
        "an option misspelt",
        "@s.tool(descripton='x')\ndef f() -> int: return 1\n",
        "@server.tool has no option 'descripton': did you mean 'description'?",
    ),
    Mistake(
        "a server option misspelt",
        "Server('s', instruction='x')\n",
        "Server has no option 'instruction': did you mean 'instructions'?",
    ),
    Mistake(
        "an option of serving at the server",
        "Server('x', port=9000)",
        "Server has no option 'port': write server.run(\"http\", port=…)",
    ),
    Mistake(
        "a generator as a tool",
        "@s.tool\ndef f() -> int:\n    yield 1\n",
        "f(): is a generator, but a call has one result; return a list, report progress by the context",
    ),
    Mistake(
        "a type that has no schema",
        "import socket\n@s.tool\ndef f(x: socket.socket) -> int: return 1\n",
        "f(): parameter `x`: annotation `socket` can't be read from JSON: socket has no JSON f"
        "orm; use str, int, float, bool, list, dict, Literal, Enum, date, a dataclass, TypedDi"
        "ct, msgspec.Struct or pydantic model",
    ),
    Mistake(
        "a set default that does not fit",
        "@s.tool\ndef f(x: int = 'a') -> int: return 1\n",
        'f(): parameter `x`: its default doesn\'t fit its annotation: expected integer, got string "a"',
    ),
    Mistake(
        "a resource with a blank",
        "@s.resource('my notes')\ndef f() -> str: return ''\n",
        "'resource://my notes' is not a URI: percent-encode characters other than A-Z a-z 0-9 and -._~",
    ),
    Mistake(
        "a resource without URI",
        "@s.resource\ndef f() -> str: return ''\n",
        'A resource needs a URI: write @server.resource("scheme://path")',
    ),
    Mistake(
        "a template variable without parameter",
        "@s.resource('n://{id}')\ndef f() -> str: return ''\n",
        "f(): doesn't fit the URI 'n://{id}': {id} has no parameter: write `id: str`",
    ),
    Mistake(
        "a parameter that is not in the template",
        "@s.resource('n://x')\ndef f(id: str) -> str: return ''\n",
        "f(): doesn't fit the URI 'n://x': parameter `id` has no variable: write {id} into the URI",
    ),
    Mistake(
        "two templates for the same URIs",
        "@s.resource('n://{id}')\n"
        "def f(id: str) -> str: return ''\n"
        "@s.resource('n://{name}')\n"
        "def g(name: str) -> str: return ''\n",
        "The resource template 'n://{name}' matches the same URIs as 'n://{id}': give it anoth"
        "er one, or remove the first",
    ),
    Mistake(
        "a malformed template",
        "@s.resource('n://{id')\ndef f(id: str) -> str: return ''\n",
        "URI template 'n://{id': the brace at character 5 is never closed",
    ),
    Mistake(
        "a resource twice",
        "@s.resource('n://x')\ndef f() -> str: return ''\n@s.resource('n://x')\ndef g() -> str: return ''\n",
        "There is a resource 'n://x' already: give this one another URI, remove the first, or say which counts: "
        'Server(on_duplicate="replace") or "keep"',
    ),
    Mistake(
        "a prompt that returns an int",
        "@s.prompt\ndef p() -> int: return 1\n",
        "p(): returns integer; return a string, a Message, or a list of these",
    ),
    Mistake(
        "a prompt that returns numbers in a list",
        "@s.prompt\ndef p() -> list[int]: return [1]\n",
        "p(): returns a list of integer; return a string, a Message, or a list of these",
    ),
    Mistake(
        "a prompt that returns an int, not annotated",
        "@s.prompt\n"
        "def p(): return 1\n"
        "async def main():\n"
        "    async with Client(s, raise_exceptions=True) as c: await c.get_prompt('p')\n",
        "Prompt 'p' returned int: return a string, a content block, a Message, or a list of these",
    ),
    Mistake(
        "a prompt parameter without annotation",
        "@s.prompt\ndef p(x): return x\n",
        "p(): parameter `x`: has no annotation, so there is no schema for it; write e.g. `x: str`",
    ),
    Mistake(
        "a message of a wrong role",
        "Message('x', role='system')\n",
        'Message: role=\'system\' is not possible: use "user" or "assistant"',
    ),
    Mistake(
        "a message of a list",
        "Message(['x'])\n",
        "Message: content is list: use a text, a content block, or an Image",
    ),
    Mistake(
        "mount of a URL",
        "s.mount('http://localhost:8000/mcp')\n",
        "mount() expects a Server, got str. For a remote server use Server.from_client(url).",
    ),
    Mistake(
        "mount of itself",
        "s.mount(s)\n",
        "'s' can't be mounted in 's': it would contain itself",
    ),
    Mistake(
        "mount under the same prefix",
        "s.mount(Server('a'), 'x')\ns.mount(Server('b'), 'x')\n",
        "'b' can't be mounted as 'x': 'a' is mounted as 'x', and names of one could be taken for names of the other",
    ),
    Mistake(
        "a server that coerces in its own words",
        "Server('s', coerce='yes')\n",
        "coerce='yes' is not possible: use True or False",
    ),
    Mistake(
        "a tool that coerces in its own words",
        "@s.tool(coerce='yes')\ndef f(days: int) -> int: return 1\n",
        "coerce='yes' is not possible: use True or False",
    ),
    Mistake(
        "a result limit that spills in its own words",
        "s.add_middleware(ResultLimit(50_000, spill='yes'))\n",
        "spill='yes' is not possible: use True, False or Spill(expires=…, bytes=…)",
    ),
    Mistake(
        "pages that are too small for a link",
        "s.add_middleware(ResultLimit(500, spill=True))\n",
        "size=500 is not possible: with spill use 2000 bytes or more",
    ),
    Mistake(
        "a proxy that coerces",
        "Server.from_client('http://localhost:1/mcp', coerce=True)\n",
        "A proxy passes arguments on as they are: say coerce=True in the server that has the tools",
    ),
    Mistake(
        "a proxy that lists null",
        "Server.from_client('http://localhost:1/mcp', list_null=True)\n",
        "A proxy lists tools as they are: say list_null=True in the server that has the tools",
    ),
    Mistake(
        "a proxy that gets a tool",
        "p = Server.from_client('http://localhost:1/mcp')\n@p.tool\ndef f() -> int: return 1\n",
        "A proxy has no features of its own: mount it in a Server, and add them there",
    ),
    Mistake(
        "an unknown transport",
        "s.run('sse')\n",
        'There is no transport \'sse\': use "stdio", "http" or "socket"',
    ),
    Mistake(
        "an unknown option of run",
        "s.run('http', prot=1)\n",
        "HTTP has no option 'prot': did you mean 'port'?",
    ),
    Mistake(
        "a port that is no number",
        "s.run('http', port='8000')\n",
        "port='8000' is not possible: use a number from 0 to 65535",
    ),
    Mistake(
        "run in a running loop",
        "async def main():\n    s.run()\n",
        "run() starts an event loop, and one is running here already: write `await server.run_async(…)` in its place",
    ),
    Mistake(
        "a path without slash",
        "s.http_app('mcp')\n",
        "path='mcp' is not possible: write a path like \"/mcp\"",
    ),
    Mistake(
        "a client of a class",
        "Client(Server)\n",
        "A client can't connect to the class Server: give an object that is made of it",
    ),
    Mistake(
        "a client of a number",
        "Client(8000)\n",
        "A client can't connect to int: give a URL, a command line, a Server, an ASGI application or a Transport",
    ),
    Mistake(
        "a client of an unknown scheme",
        "Client('ws://localhost/mcp')\n",
        "'ws://localhost/mcp' is not an address that a client knows: write http://…, https://…"
        ", tcp://host:port, unix:/path, or a command line",
    ),
    Mistake(
        "a client of a host without scheme",
        "Client('example.com:8000')\n",
        "'example.com:8000' is not a command: for a server over HTTP write https://example.com:8000",
    ),
    Mistake(
        "a client of a missing file",
        "Client('nothere.py')\n",
        "No such file: nothere.py",
    ),
    Mistake(
        "a client of an empty command",
        "Client('')\n",
        "The command line is empty: give the program that runs the server",
    ),
    Mistake(
        "a client option misspelt",
        "Client(s, on_elict=print)\n",
        "Client has no option 'on_elict': did you mean 'on_elicit'?",
    ),
    Mistake(
        "an option of another transport",
        "Client('python x', headers={})\n",
        "A client of ['python', 'x'] has no option headers",
    ),
    Mistake(
        "a header that is not text",
        "Client('http://localhost:1/mcp', headers={'X': 1})\n",
        '`headers` must map header names to text: {"X-Name": "value"}',
    ),
    Mistake(
        "an unknown era",
        "Client(s, era='2024')\n",
        'era=\'2024\' is not possible: use "auto", "2025" or "2026"',
    ),
    Mistake(
        "a program that does not exist",
        "async def main():\n    async with Client('no-such-program-here'): pass\n",
        "Can't start no-such-program-here: there is no program 'no-such-program-here'; give it"
        "s full path, or a PATH that has it in `env`.",
    ),
    Mistake(
        "a server that is not there",
        "async def main():\n    async with Client('http://127.0.0.1:1/mcp'): pass\n",
        "No connection to 127.0.0.1:1: [Errno 111] Connect call failed ('127.0.0.1', 1). Is the server running?",
    ),
    Mistake(
        "a call before connecting",
        "async def main():\n    await Client(s).list_tools()\n",
        "Nothing was sent: the client is not connected",
    ),
    Mistake(
        "an unknown tool",
        "@s.tool\n"
        "def forecast() -> int: return 1\n"
        "async def main():\n"
        "    async with Client(s) as c: await c.call_tool('forcast')\n",
        "Unknown tool: forcast. Did you mean 'forecast'? (-32602)",
    ),
    Mistake(
        "a wrong argument type",
        "@s.tool\n"
        "def f(days: int) -> int: return 1\n"
        "async def main():\n"
        "    async with Client(s) as c: await c.call_tool('f', {'days': 'soon'})\n",
        "Invalid arguments for tool 'f': days: expected integer, got string \"soon\"",
    ),
    Mistake(
        "a missing argument",
        "@s.tool\n"
        "def f(days: int) -> int: return 1\n"
        "async def main():\n"
        "    async with Client(s) as c: await c.call_tool('f', {})\n",
        "Invalid arguments for tool 'f': days: missing (required integer)",
    ),
    Mistake(
        "an unknown argument",
        "@s.tool\n"
        "def f(days: int) -> int: return 1\n"
        "async def main():\n"
        "    async with Client(s) as c: await c.call_tool('f', {'days': 1, 'dais': 1})\n",
        "Invalid arguments for tool 'f': dais: unknown argument; did you mean \"days\"?",
    ),
    Mistake(
        "arguments as a list",
        "@s.tool\n"
        "def f(days: int) -> int: return 1\n"
        "async def main():\n"
        "    async with Client(s) as c: await c.call_tool('f', [1])\n",
        "The arguments for 'f' must be a mapping, not list",
    ),
    Mistake(
        "a result that does not match",
        "@s.tool\n"
        "def f() -> int: return 'x'\n"
        "async def main():\n"
        "    async with Client(s, raise_exceptions=True) as c: await c.call_tool('f')\n",
        'f(): returned a value that doesn\'t fit `-> int`: expected integer, got string "x"; re'
        "turn what the annotation says, or change the annotation",
    ),
    Mistake(
        "an unknown prompt",
        "@s.prompt\n"
        "def hello() -> str: return 'x'\n"
        "async def main():\n"
        "    async with Client(s) as c: await c.get_prompt('helo')\n",
        "Unknown prompt: helo. Did you mean 'hello'? (-32602)",
    ),
    Mistake(
        "an unknown resource",
        "async def main():\n    async with Client(s) as c: await c.read_resource('n://x')\n",
        "Resource not found: n://x (-32602)",
    ),
    Mistake(
        "a question without on_elicit",
        "@s.tool\n"
        "async def f(ctx: Context[Any]) -> str: return await ctx.elicit('Name?', str)\n"
        "async def main():\n"
        "    async with Client(s) as c: await c.call_tool('f')\n",
        "Missing required client capability: elicitation (-32021)",
    ),
    Mistake(
        "an answer of on_elicit of a wrong type",
        "@s.tool\n"
        "async def f(ctx: Context[Any]) -> str: return await ctx.elicit('Name?', str)\n"
        "async def main():\n"
        "    async with Client(s, on_elicit=lambda p: 5) as c: await c.call_tool('f')\n",
        "on_elicit returned int: return a dict of the fields of the form (value), or None to decline",
    ),
    Mistake(
        "content of on_elicit that does not match",
        "@s.tool\n"
        "async def f(ctx: Context[Any]) -> int: return await ctx.elicit('Age?', int)\n"
        "async def main():\n"
        "    async with Client(s, on_elicit=lambda p: {'value': 'x'}) as c: await c.call_tool('f')\n",
        "The answer of on_elicit to 'Age?' does not fit the form: value: the value is not of type \"integer\"",
    ),
    Mistake(
        "a client connected twice",
        "async def main():\n    async with Client(s) as c: await c.connect()\n",
        "This client is connected already",
    ),
    Mistake(
        "a group of a list",
        "ClientGroup(['a.py'])\n",
        "targets=['a.py'] is not possible: write ClientGroup({\"name\": target, …}), "
        "or ClientGroup.from_config(…) for a configuration",
    ),
    Mistake(
        "a group option misspelt",
        "ClientGroup({}, strikt=True)\n",
        "ClientGroup has no option 'strikt': did you mean 'strict'?",
    ),
    Mistake(
        "an unknown server of a group",
        "async def main():\n    async with ClientGroup({'a': s}) as g: await g.call_tool('f', server='b')\n",
        "There is no server 'b': there are 'a'",
    ),
    Mistake(
        "an OpenAPI document without URL",
        "Server.from_openapi({'openapi': '3.1.0', 'info': {'title': 'a', 'version': '1'}, 'paths': {"
        "'/x': {'get': {'responses': {}}}}})\n",
        "The document has no URL of the API, only '': pass base_url='https://…'",
    ),
    Mistake(
        "ctx.elicit with a nested type",
        "class A(__import__('msgspec').Struct):\n"
        "    x: dict[str, int]\n"
        "@s.tool\n"
        "async def f(ctx: Context[Any]) -> str: return str(await ctx.elicit('Name?', A))\n"
        "async def main():\n"
        "    async with Client(s, raise_exceptions=True, on_elicit=lambda p: None) as c: await c.call_tool('f')\n",
        "A.x can't stand in a form: use str, int, float, bool, a choice of strings, or a list of one",
    ),
    Mistake(
        "a lifespan that is not a context manager",
        "async def life(s): yield 1\nServer('x', lifespan=5)\n",
        "lifespan=5 is not possible: write @asynccontextmanager above `async def lifespan(serv"
        "er)`, and `yield` in it, or None",
    ),
    Mistake(
        "a form of the OpenAPI document without operations",
        "Server.from_openapi({'openapi': '3.1.0', 'info': {'title': 'a', 'version': '1'}, 'paths': {}})\n",
        "The OpenAPI document has no operation that can be used; the log says why",
    ),
    Mistake(
        "an OpenAPI client that can't send",
        "Server.from_openapi({'openapi': '3.1.0', 'info': {'title': 'a', 'version': '1'}, 'paths': {}}, 5)\n",
        "http_client must be an async function or have an async method `request`",
    ),
    Mistake(
        "a configuration without servers",
        "ClientGroup.from_config({'servrs': {}})\n",
        'the configuration has no "mcpServers": {name: {"command": …}}; it holds \'servrs\'',
    ),
    Mistake(
        "a configured server without command",
        "Client.from_config({'mcpServers': {'a': {'comand': 'x'}}})\n",
        "the configuration: server 'a' needs either a \"command\" or a \"url\"; it has 'comand'",
    ),
    Mistake(
        "a configured URL of another scheme",
        "Client.from_config({'mcpServers': {'a': {'url': 'ftp://h'}}})\n",
        "the configuration: server 'a': url: must begin with http:// or https://, not 'ftp://h'",
    ),
    Mistake(
        "a client in a plain with",
        "with Client(s): pass\n",
        "A Client is opened by `async with Client(…)`; without async use gemel.sync.Client",
    ),
    Mistake(
        "a blocking client in async with",
        "import gemel.sync\nasync def main():\n    async with gemel.sync.Client(s): pass\n",
        "This Client is opened by `with Client(…)`; in async code use gemel.Client",
    ),
    Mistake(
        "a group in a plain with",
        "with ClientGroup({'a': s}): pass\n",
        "A ClientGroup is opened by `async with ClientGroup(…)`; without async use gemel.sync.ClientGroup",
    ),
    Mistake(
        "an option of a URL for an ASGI application",
        "Client(s.http_app(), tls=False)\n",
        "A client of an ASGI app has no option tls",
    ),
    Mistake(
        "a client of a function that makes a server",
        "def make(): return s\nClient(make)\n",
        "A client can't connect to function: call it, Client(make(…)), if it returns a Server",
    ),
    Mistake(
        "a client of a configuration",
        "Client({'mcpServers': {}})\n",
        "A client can't connect to dict: a configuration is read by ClientGroup.from_config(…)",
    ),
    Mistake(
        "a client of a folder",
        "async def main():\n    async with Client('/'): pass\n",
        "Can't start /: '/' is a folder; name the program in it, or the Python file.",
    ),
    Mistake(
        "arguments as keywords",
        "@s.tool\n"
        "def f(days: int) -> int: return 1\n"
        "async def main():\n"
        "    async with Client(s) as c: await c.call_tool('f', days=1)\n",
        "tools/call has no option 'days': did you mean an argument? They are passed as one mapping: {'days': …}",
    ),
    Mistake(
        "the time limit by its name in other libraries",
        "async def main():\n    async with Client(s) as c: await c.call_tool('f', timeout=5)\n",
        "tools/call has no option 'timeout': did you mean 'total'?",
    ),
    Mistake(
        "a call of a function",
        "@s.tool\ndef f() -> int: return 1\nasync def main():\n    async with Client(s) as c: await c.call_tool(f)\n",
        "call_tool needs the name of a tool, not function: write call_tool('f')",
    ),
    Mistake(
        "a resource by its path",
        "from pathlib import PurePosixPath\n"
        "async def main():\n"
        "    async with Client(s) as c: await c.read_resource(PurePosixPath('x'))\n",
        "read_resource needs a URI or a listed resource, not PurePosixPath",
    ),
    Mistake(
        "a limit misspelt",
        "Limits(boddies=5)\n",
        "Limits has no option 'boddies': did you mean 'bodies'?",
    ),
    Mistake(
        "an image of base64",
        "Image(data='iVBORw0KGgo=')\n",
        "Image: data is str, and must be bytes; of base64 make them with base64.b64decode(…)",
    ),
    Mistake(
        "a format that is not text",
        "Image(data=b'x', format=5)\n",
        'Image: format=5 is not possible: write the ending of a file, as in "png"',
    ),
    Mistake(
        "the class of a middleware",
        "s.add_middleware(ResultLimit)\n",
        "ResultLimit is a class, not middleware: write ResultLimit(…)",
    ),
    Mistake(
        "the class of an extension",
        "from gemel.extensions.tasks import Tasks\ns.add_extension(Tasks)\n",
        "<class 'gemel.extensions.tasks.tasks.Tasks'> is not an extension object: write add_extension(Tasks())",
    ),
    Mistake(
        "removing what is not there",
        "@s.tool\ndef forecast() -> int: return 1\ns.remove_tool('forcast')\n",
        "\"There is no 'forcast' to remove: did you mean 'forecast'?\"",
    ),
    Mistake(
        "a form that is the schema of a string",
        "@s.tool\n"
        "async def f(ctx: Context[Any]) -> str: return str(await ctx.elicit('Name?', {'type': 'string'}))\n"
        "async def main():\n"
        "    async with Client(s, raise_exceptions=True, on_elicit=lambda p: None) as c: await c.call_tool('f')\n",
        'The JSON Schema of a form is that of an object: {"type": "object", "properties": {…}}',
    ),
    Mistake(
        "a question in a function without async",
        "@s.tool\n"
        "def f(ctx: Context[Any]) -> str:\n"
        "    ctx.elicit('Name?', str)\n"
        "    return 'x'\n"
        "async def main():\n"
        "    async with Client(s, raise_exceptions=True, on_elicit=lambda p: None) as c: await c.call_tool('f')\n",
        "ctx.elicit('Name?') was not awaited: write `ctx.sync.elicit('Name?')`",
    ),
    Mistake(
        "an OpenAPI document by the name of its file",
        "Server.from_openapi('petstore.json')\n",
        "The OpenAPI document 'petstore.json' can't be read: No such file or directory",
    ),
    Mistake(
        "an OpenAPI document at an address where nobody listens",
        "Server.from_openapi('http://127.0.0.1:1/openapi.json')\n",
        "http://127.0.0.1:1/openapi.json can't be fetched: Connection refused",
    ),
    Mistake(
        "JSON that is not OpenAPI",
        "Server.from_openapi({'paths': {}})\n",
        'This is not an OpenAPI 3 document: it has no "openapi": "3.…"',
    ),
)
