"""Scripts of a model are bounded in everything, reach nothing but their tools, and end with whoever asked for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gemel.code.sandbox import ScriptLimits, ScriptModule, ScriptPlaces, ScriptResult, run_script
from gemel.errors import DefinitionError, Overloaded, ToolError

pytest.importorskip("pydantic_monty")

LIMITS = ScriptLimits(cpu=0.5, memory=50_000_000, calls=20, printed=1000)
STUBS = "from typing import Any\nasync def echo(*, value: Any = ...) -> Any: ...\nasync def wait() -> None: ...\n"
IMPORT = "from tools import echo, wait\nimport asyncio\n"


async def echo(value: object = None) -> object:
    return value


async def run(code: str, limits: ScriptLimits = LIMITS) -> ScriptResult:
    async def wait() -> None:
        await asyncio.Event().wait()

    module = ScriptModule({"echo": echo, "wait": wait}, STUBS)
    return await asyncio.wait_for(run_script(IMPORT + code, {"tools": module}, ScriptPlaces(limits)), 30)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", 2),
        ("await echo(value={'a': [1, 2.5, None, True]})", {"a": [1, 2.5, None, True]}),
        ("await asyncio.gather(*[echo(value=i) for i in range(5)])", [0, 1, 2, 3, 4]),
        ("import json\njson.loads('[1]')", [1]),
        ("import re, math, datetime, collections, itertools\nmath.floor(2.5)", 2),
        ("def f(x: int) -> int:\n    return x * 2\nf(4)", 8),
        ("x = []\nx.append(x)\nx", ["[...]"]),
        ("print('\\ud800')\n[await echo(value='\\ud800'), '\\ud800']", ["\ufffd", "\ufffd"]),
        ("try:\n    1/0\nexcept ZeroDivisionError as e:\n    r = str(e)\nr", "division by zero"),
    ],
)
async def test_a_script_gives_the_value_of_its_last_expression(code: str, value: object) -> None:
    assert (await run(code)).value == value


async def test_what_a_script_prints_is_no_output_of_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    assert await run("print('seen', {'a': 1})\n5") == ScriptResult(5, "seen {'a': 1}\n")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param("while True:\n    pass", "TimeoutError", id="loop"),
        pytest.param(
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "TimeoutError",
            id="catching",
        ),
        pytest.param("x = 'a' * 10\nwhile True:\n    x = x + x", "MemoryError", id="text that grows"),
        pytest.param("list(range(10**9))", "MemoryError", id="list"),
        pytest.param("[0] * 10**10", "MemoryError", id="repeated list"),
        pytest.param("pow(3, 10**9)", "MemoryError", id="power"),
        pytest.param("x = 2 ** (10**8)\nlen(str(x))", "MemoryError", id="large number"),
        pytest.param("f'{1:>1000000000}'", "MemoryError", id="format"),
        pytest.param("'%1000000000d' % 1", "MemoryError", id="old format"),
        pytest.param("int('9' * 5_000_000)", "ValueError", id="number in text"),
        pytest.param("def f(n: int) -> int:\n    return f(n + 1)\nf(0)", "RecursionError", id="recursion"),
        pytest.param("x = " + "(" * 20_000 + ")" * 20_000, "too deeply nested", id="parser"),
        pytest.param("import json\njson.loads('[' * 100000)", "recursion limit", id="JSON"),
        pytest.param(
            "while True:\n    print('x' * 100)", "printed more than 1000 bytes: print or return", id="printing"
        ),
        pytest.param("await echo(value='x' * 40_000_000)", "MemoryError", id="large argument"),
        pytest.param(
            "while True:\n    try:\n        await echo(value=1)\n    except BaseException: pass", "limit", id="calls"
        ),
        pytest.param("x = [1]\nfor _ in range(60):\n    x = [x, x]\nx", "more than 50000000 bytes", id="shared parts"),
        pytest.param(
            "x = {'a': 1}\nfor _ in range(60):\n    x = {'a': x, 'b': (x,)}\nx", "more than", id="shared values"
        ),
        pytest.param("['x' * 1_000_000] * 1000", "more than", id="shared text"),
        pytest.param(
            "class A:\n    def __init__(self, x: object) -> None:\n        self.x = [x, x]\nx: object = 1\n"
            "for _ in range(60):\n    x = A(x)\nx",
            "more than",
            id="shared objects",
        ),
        pytest.param(
            "x = [1]\nfor _ in range(60):\n    x = [x, x]\nawait echo(value=x)",
            "more than",
            id="shared parts of arguments",
        ),
        pytest.param("for i in range(21):\n    await echo(value=i)", "may call 20 tools", id="one call too many"),
        pytest.param(
            "await asyncio.gather(*[echo(value=i) for i in range(9999)])", "may call 20 tools", id="calls at a time"
        ),
    ],
)
async def test_a_script_that_takes_too_much_is_ended(code: str, told: str) -> None:
    with pytest.raises(ToolError, match=told) as raised:
        await run(code)
    assert len(str(raised.value)) < 5000


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param(
            "def f() -> None:\n    try:\n        f()\n    finally:\n        f()\nf()", "TimeoutError", id="finally"
        ),
        pytest.param(
            "def f(n: int) -> None:\n    try:\n        1 / 0\n    except Exception as e:\n        raise ValueError('x') from e\n"
            "e: BaseException = ValueError()\nwhile True:\n    try:\n        raise ValueError('x') from e\n"
            "    except ValueError as one:\n        e = one",
            "Error",
            id="causes of causes",
        ),
        pytest.param("raise ValueError('x' * 20_000_000)", "ValueError: x", id="large message"),
        pytest.param("raise ValueError('x\\n' * 1_000_000)", "ValueError: x", id="many lines"),
        pytest.param("import re\nre.match('(a+)+$', 'a' * 50 + 'b')\nwhile True: pass", "Error", id="pattern"),
        pytest.param("import itertools\nlist(itertools.count())", "MemoryError|TimeoutError", id="endless iterator"),
        pytest.param("import itertools\nlen(list(itertools.product(range(100), repeat=20)))", "Error", id="product"),
        pytest.param("('a' * 1_000_000).replace('a', 'b' * 1_000_000)", "MemoryError", id="replace"),
        pytest.param("import math\nmath.factorial(10**8)", "Error", id="factorial"),
        pytest.param("while True:\n    print('x', end='')", "printed more than 1000 bytes", id="one line"),
        pytest.param("await echo(**{'x' * 60_000_000: 1})", "Error", id="large name"),
        pytest.param(
            "await asyncio.gather(*[echo(value='x' * 3_000_000) for _ in range(20)])",
            "read less|MemoryError",
            id="large results",
        ),
        pytest.param(
            "class A:\n    def __repr__(self) -> str:\n        return repr(self)\nprint(A())",
            "RecursionError",
            id="text of itself",
        ),
        pytest.param(
            "class A:\n    def __eq__(self, other: object) -> bool:\n        while True: pass\n"
            "    def __hash__(self) -> int:\n        return 1\n{A(): 1, A(): 2}",
            "TimeoutError",
            id="equality",
        ),
        pytest.param("sorted(range(10**6), key=lambda n: [0] * n)", "Error", id="sorting"),
        pytest.param(
            "async def f() -> None:\n    await asyncio.gather(f(), f())\nawait f()",
            "It may compute for|values may have",
            id="gather in gather",
        ),
        pytest.param(
            "x0 = (1, 'a')\n" + "".join(f"x{n + 1} = (x{n}, x{n})\n" for n in range(60)) + "x60",
            "has more than",
            id="types",
        ),
    ],
)
async def test_an_attack_ends_with_an_error_that_can_be_read(code: str, told: str) -> None:
    with pytest.raises(ToolError, match=told) as raised:
        await run(code)
    assert len(str(raised.value)) < 5000
    assert (await run("1 + 1")).value == 2


@pytest.mark.parametrize("use", ["{x}", "await echo(value={x})", "{x: 1}"])
async def test_a_value_that_takes_forever_to_convert_holds_up_nobody(use: str) -> None:
    """Forty tuples one in another, each twice: 2**40 hashes, in what makes a set of Python of it."""
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    working = asyncio.create_task(other_work())
    with pytest.raises(ToolError, match="the sandbox was ended"):
        await run(f"x = (1,)\nfor _ in range(40):\n    x = (x, x)\n{use}")
    working.cancel()
    assert turns > 50


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "import os\nos.listdir('/')",
        "import os\nos.environ['HOME']",
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        "import socket",
        "import subprocess",
        "import ctypes",
        "import sys\nsys.modules",
        "import importlib",
        "().__class__.__base__.__subclasses__()",
        "echo.__globals__",
        "import time\ntime.sleep(100)",
        "await asyncio.sleep(100)",
        "import time\ntime.time()",
        "import datetime\ndatetime.datetime.now()",
        "import random\nrandom.random()",
        "import os\nos.urandom(4)",
        "eval(\"open('/etc/passwd')\")",
        "exec('import socket')",
        "__import__('os')",
    ],
)
async def test_a_script_reaches_nothing_but_its_tools(code: str) -> None:
    with pytest.raises(ToolError):
        await run(code)


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("await echo(valeu=1)", "line 3:12"),
        ("await echo(1)", "line 3:12"),
        ("from tools import nothing", "line 3:19"),
        ("echo(value=1)['a']", "line 3:1"),
        ("x = = 3", "(?s:.*)line 3:5"),
        ("undefined + 1", "line 3:1"),
    ],
)
async def test_types_are_checked_before_anything_runs(code: str, place: str) -> None:
    with pytest.raises(ToolError, match=f"The script was not run:\n{place}"):
        await run(code)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import pandas", "as search_tools names them, of tools, and asyncio"),
        ("asyncio.create_task(echo())", "at a time by `await asyncio.gather"),
        (
            "await asyncio.gather(echo(), return_exceptions=True)",
            "catch RuntimeError in an `async def` around each call",
        ),
        ("undefined", "Import each tool: `from module import function`, of tools"),
        ("await echo(1)", "Write the name of each argument"),
        ("[echo()]", "Not all calls were awaited: write `await` before each call"),
        ("one = echo()\nprint(one)", "Not all calls were awaited: write `await` before each call"),
        ("while True:\n    pass", "It may compute for 0.5 s: compute less"),
        ("[0] * 10**9", "Its values may have 50,000,000 bytes: keep less"),
        (
            "while True:\n    try:\n        await echo()\n    except RuntimeError:\n        pass",
            "It may call 20 tools: do the rest",
        ),
        ("print('x' * 2000)", "It printed more than 1000 bytes: print or return only what is needed"),
    ],
)
async def test_an_error_says_what_to_do(code: str, told: str) -> None:
    with pytest.raises(ToolError) as raised:
        await run(code)
    assert told in str(raised.value)


@pytest.mark.parametrize("code", ["```python\n'```'\n```\n", "\n```\n'```'\n```", "```py\n'```'"])
async def test_a_script_in_a_fence_of_markdown_is_read(code: str) -> None:
    assert (await run_script(code, {}, ScriptPlaces(LIMITS))).value == "```"
    with pytest.raises(ToolError, match=r"line 3:1: error.*`undefined`"):
        await run_script("```\n1\nundefined\n```", {}, ScriptPlaces(LIMITS))


async def test_a_call_that_another_one_left_behind_is_no_mistake() -> None:
    async def fail() -> None:
        raise RuntimeError("no")

    async def wait() -> None:
        await asyncio.Event().wait()

    module = ScriptModule({"echo": fail, "wait": wait}, STUBS)
    code = f"{IMPORT}try:\n    await asyncio.gather(echo(), wait())\nexcept RuntimeError as e:\n    told = str(e)\ntold"
    assert (await run_script(code, {"tools": module}, ScriptPlaces(LIMITS))).value == "no"


async def test_a_mistake_of_syntax_is_told_alone() -> None:
    with pytest.raises(ToolError) as raised:
        await run("5 if")
    assert str(raised.value).splitlines() == [
        "The script was not run:",
        "line 3:5: error[invalid-syntax] Expected an expression",
    ]


async def test_an_error_says_that_tools_were_called() -> None:
    with pytest.raises(ToolError, match="failed after it had called 2 tools"):
        await run("await echo(value=1)\nawait echo(value=2)\n1 / 0")


async def test_calls_end_with_the_script() -> None:
    ended: list[str] = []
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")

    module = ScriptModule({"echo": echo, "wait": wait}, STUBS)
    script = asyncio.create_task(run_script(IMPORT + "await wait()", {"tools": module}, ScriptPlaces(LIMITS)))
    await begun.wait()
    script.cancel()
    with pytest.raises(asyncio.CancelledError):
        await script
    assert ended == ["wait"]


class Waiting:
    """Tools that wait until they are told, and what was called."""

    def __init__(self, **limits: float) -> None:
        self.called: list[object] = []
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.places = ScriptPlaces(ScriptLimits(**{"scripts": 1, **limits}))  # type: ignore[arg-type]  # whole numbers and others

    async def echo(self, value: object = None) -> object:
        self.called.append(value)
        return value

    async def wait(self) -> str:
        self.begun.set()
        await self.go_on.wait()
        return "waited"

    async def run(self, code: str, begun: Callable[[asyncio.Timeout], None] = lambda limit: None) -> object:
        module = ScriptModule({"echo": self.echo, "wait": self.wait}, STUBS)
        return (
            await asyncio.wait_for(run_script(IMPORT + code, {"tools": module}, self.places, begun=begun), 30)
        ).value


async def test_a_script_that_waits_leaves_its_process_to_others_and_repeats_no_call() -> None:
    tools = Waiting()
    code = "first = await echo(value='first')\n[first, await asyncio.gather(wait(), echo(value={0})), await echo(value='last')]"
    scripts = [asyncio.create_task(tools.run(code.format(number))) for number in range(3)]
    await tools.begun.wait()
    assert await tools.run("await echo(value='other')") == "other"
    tools.go_on.set()
    assert await asyncio.gather(*scripts) == [["first", ["waited", number], "last"] for number in range(3)]
    assert sorted(map(str, tools.called)) == ["0", "1", "2", *["first"] * 3, *["last"] * 3, "other"]


async def test_a_call_that_ends_a_script_ends_one_that_has_no_process() -> None:
    tools = Waiting()

    async def fail() -> None:
        tools.begun.set()
        await tools.go_on.wait()
        raise LookupError("gone")

    module = ScriptModule({"echo": fail, "wait": fail}, STUBS)
    script = asyncio.create_task(run_script(IMPORT + "await wait()", {"tools": module}, tools.places))
    await tools.begun.wait()
    assert await tools.run("1") == 1
    tools.go_on.set()
    with pytest.raises(LookupError, match="gone"):
        await script


async def test_scripts_that_would_wait_too_long_are_told_that_they_were_not_run() -> None:
    busy = "while True:\n    pass"
    tools = Waiting(waiting=0, cpu=3)
    first = asyncio.create_task(tools.run(busy))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="Too many scripts: 1 run and 0 wait"):
        await tools.run("1")
    with pytest.raises(ToolError, match="feed time limit"):
        await first
    tools = Waiting(seconds=1, cpu=10)
    first = asyncio.create_task(tools.run(busy, begun=lambda limit: limit.reschedule(None)))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="was not served: of its 1 s it waited 1 s for a process"):
        await tools.run("await echo(value='never')")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    with pytest.raises(ToolError, match="took more than 1 s"):
        await tools.run(busy)
    assert tools.called == []


async def test_a_script_whose_time_went_by_while_others_had_its_process_is_told_so() -> None:
    tools, limits = Waiting(seconds=2, cpu=20), list[asyncio.Timeout]()

    def without_end(limit: asyncio.Timeout) -> None:
        limits.append(limit)
        limit.reschedule(None)

    first = asyncio.create_task(tools.run("await echo(value=1)\nawait wait()", without_end))
    await tools.begun.wait()
    other = asyncio.create_task(tools.run("await echo(value='other')\nwhile True: pass", without_end))
    while "other" not in tools.called:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    tools.go_on.set()
    limits[0].reschedule(asyncio.get_running_loop().time() + 1.5)
    with pytest.raises(ToolError, match=r"after it had called 2 tools: of its 2 s it waited \d s for a process"):
        await first
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_values_that_only_hosts_could_misread_are_plain() -> None:
    deep = (await run("x = []\nfor _ in range(100000):\n    x = [x]\nx")).value
    assert isinstance(deep, list)


@pytest.mark.parametrize("code", ["while True:\n    pass", "1 + 1"])
def test_a_process_ends_cleanly_after_a_script(code: str) -> None:
    program = (
        "import asyncio\nfrom gemel.code.sandbox import *\nfrom gemel.errors import ToolError\nasync def main():\n"
        f"    places = ScriptPlaces(ScriptLimits(cpu=0.05))\n    try: await run_script({code!r}, {{}}, places)\n"
        "    except ToolError: pass\nasyncio.run(main())\n"
    )
    for _ in range(5):
        assert subprocess.run([sys.executable, "-c", program], cwd=Path.home(), check=False).returncode == 0


@pytest.mark.parametrize(
    "options",
    [{"calls": 0}, {"seconds": 0}, {"cpu": -1}, {"memory": 5}, {"printed": -1}, {"scripts": 0}, {"waiting": -1}],
)
def test_limits_are_checked(options: dict[str, int]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(options))):
        ScriptLimits(**options)
