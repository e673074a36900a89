"""Scripts of a model are bounded in everything, reach nothing but their tools, and end with whoever asked for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gemel.code.sandbox import ScriptLimits, ScriptModule, ScriptResult, run_script
from gemel.errors import DefinitionError, ToolError

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
    return await asyncio.wait_for(run_script(IMPORT + code, {"tools": module}, limits), 30)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", 2),
        ("await echo(value={'a': [1, 2.5, None, True]})", {"a": [1, 2.5, None, True]}),
        ("await asyncio.gather(*[echo(value=i) for i in range(5)])", [0, 1, 2, 3, 4]),
        ("import json\njson.loads('[1]')", [1]),
        ("import re, math, datetime, collections, itertools\nmath.floor(2.5)", 2),
        ("def f(x: int) -> int:\n    return x * 2\nf(4)", 8),
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
        pytest.param("while True:\n    print('x' * 100)", "MemoryError", id="printing"),
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
        pytest.param("await asyncio.gather(*[echo(value=i) for i in range(9999)])", "limit", id="calls at a time"),
    ],
)
async def test_a_script_that_takes_too_much_is_ended(code: str, told: str) -> None:
    with pytest.raises(ToolError, match=told) as raised:
        await run(code)
    assert len(str(raised.value)) < 5000


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
    script = asyncio.create_task(run_script(IMPORT + "await wait()", {"tools": module}, LIMITS))
    await begun.wait()
    script.cancel()
    with pytest.raises(asyncio.CancelledError):
        await script
    assert ended == ["wait"]


async def test_values_that_only_hosts_could_misread_are_plain() -> None:
    deep = (await run("x = []\nfor _ in range(100000):\n    x = [x]\nx")).value
    assert isinstance(deep, list)


@pytest.mark.parametrize("code", ["while True:\n    pass", "1 + 1"])
def test_a_process_ends_cleanly_after_a_script(code: str) -> None:
    program = (
        "import asyncio\nfrom gemel.code.sandbox import *\nfrom gemel.errors import ToolError\nasync def main():\n"
        f"    try: await run_script({code!r}, {{}}, ScriptLimits(cpu=0.05))\n    except ToolError: pass\nasyncio.run(main())\n"
    )
    for _ in range(5):
        assert subprocess.run([sys.executable, "-c", program], cwd=Path.home(), check=False).returncode == 0


@pytest.mark.parametrize(
    "options", [{"calls": 0}, {"seconds": 0}, {"cpu": -1}, {"memory": 5}, {"printed": -1}, {"scripts": 0}]
)
def test_limits_are_checked(options: dict[str, int]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(options))):
        ScriptLimits(**options)
