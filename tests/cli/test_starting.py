"""Files as `gemel` starts them: found as Python finds them, quiet on standard output, and not silently empty."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.quick_commands import QUICK
from tests.transports.http_rig import modern_call

SERVER = """
from gemel import Server

server = Server("placed")

@server.tool
def place() -> str:
    return __name__
"""


def gemel(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return QUICK.run(*words, cwd=cwd)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def answered(command: list[str], cwd: Path, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], str]:
    """Send calls of tools on standard input; return the lines of standard output as JSON, and standard error."""
    lines = [json.dumps(modern_call(name, number, **arguments)[1]) for number, (name, arguments) in enumerate(calls)]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=60, check=True, cwd=cwd
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


# ---------------------------------------------------------------- where modules are found


@pytest.mark.parametrize(
    ("words", "inside"),
    [
        (["call", "src/shop/api/server.py", "place"], ""),
        (["call", "src/shop/api/server.py:server", "place"], ""),
        (["call", "server.py", "place"], "src/shop/api"),
        (["call", "api/server.py", "place", "--cwd", "../../elsewhere"], "src/shop"),
    ],
    ids=["from the root", "with a name", "from its folder", "with --cwd"],
)
def test_a_file_in_a_package_is_the_module_that_the_package_has(words: list[str], inside: str, tmp_path: Path) -> None:
    """Relative and absolute imports work, and so does what lies beside a script."""
    imports = "from ..stock import ITEMS\nfrom shop.stock import ITEMS as SAME\nimport beside\nassert ITEMS is SAME\n"
    write(
        tmp_path,
        {
            "src/shop/__init__.py": "",
            "src/shop/stock.py": "ITEMS = ['tea']",
            "src/shop/api/__init__.py": "",
            "src/shop/api/server.py": imports + SERVER,
            "src/shop/api/beside.py": "",
            "src/shop/api/queue.py": "raise RuntimeError('this is not the module of Python')",
            "elsewhere/shop.py": "",
        },
    )
    done = gemel(*words, cwd=tmp_path / inside)
    assert (done.returncode, done.stdout, done.stderr) == (0, "shop.api.server\n", "")


def test_a_package_that_imports_its_server_has_one_server(tmp_path: Path) -> None:
    count = "\nimport sys\nsys.stderr.write('imported\\n')"
    write(tmp_path, {"shop/__init__.py": "from .server import server", "shop/server.py": SERVER + count})
    done = gemel("list", "shop/server.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "imported\n")
    done = gemel("call", "shop/__init__.py", "place", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("shop.server\n", "imported\n")


def test_a_script_may_be_imported_by_what_it_imports(tmp_path: Path) -> None:
    """`from app import server` in another file finds the server that is started."""
    more = "from app import server\n@server.tool\ndef more() -> str: return 'more'\n"
    write(tmp_path, {"app.py": SERVER + "\nimport more\n", "more.py": more})
    assert gemel("call", "app.py", "more", cwd=tmp_path).stdout == "more\n"


@pytest.mark.parametrize(
    ("files", "error"),
    [
        (
            {"shop/server.py": "from .stock import ITEMS"},
            "attempted relative import with no known parent package; add an empty __init__.py to its folder, or name the module: "
            "gemel run -m PACKAGE.MODULE",
        ),
        (
            {"json/__init__.py": "", "json/server.py": SERVER},
            "json/server.py is in the package 'json', but another package has this name",
        ),
        ({"shop/__init__.py": "import nowhere", "shop/server.py": SERVER}, "No module named 'nowhere'"),
    ],
    ids=["no package", "a package of Python", "a package that fails"],
)
def test_what_keeps_a_file_from_being_imported_is_told(files: dict[str, str], error: str, tmp_path: Path) -> None:
    write(tmp_path, files)
    done = gemel("list", next(name for name in files if name.endswith("server.py")), cwd=tmp_path)
    assert (done.returncode, error in done.stderr.splitlines()[-1]) == (1, True), done.stderr


# ---------------------------------------------------------------- imported twice, and empty

CIRCLE = {
    "app.py": "from gemel import Server\nserver = Server('app')\nimport tools\nif __name__ == '__main__': server.run()",
    "tools.py": "from app import server\n@server.tool\ndef a() -> int: return 1\n@server.tool\ndef b() -> int: return 1\n",
}
TWICE = "2 tools were registered on the other server. Make the server in a file of its own, which others import"


def test_a_program_that_is_imported_by_its_parts_is_told(tmp_path: Path) -> None:
    write(tmp_path, CIRCLE)
    _, told = answered([sys.executable, "app.py"], tmp_path)
    assert told == f"app.py was imported twice, as __main__ and app: {TWICE}\n"
    done = gemel("list", "app.py", cwd=tmp_path)
    assert ("a()" in done.stdout, done.stderr) == (True, "")


def test_a_module_of_a_package_that_is_imported_as_a_script_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"shop/__init__.py": "", **{f"shop/{name}": text for name, text in CIRCLE.items()}})
    done = gemel("list", "shop/app.py", cwd=tmp_path)
    assert done.stderr == f"app.py was imported twice, as shop.app and app: {TWICE}\n"


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_server_that_offers_nothing_says_so(transport: str, tmp_path: Path) -> None:
    """Once it is started: the lifespan may register something."""
    write(tmp_path, {"empty.py": "from gemel import Server\nserver = Server('empty')"})
    words = ["--http", "--port", "0"] if transport == "http" else []
    with subprocess.Popen(
        [sys.executable, "-m", "gemel", "run", "empty.py", *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == (
                "Server 'empty' offers nothing: no tool, prompt or resource is registered on it\n"
            )
        finally:
            process.kill()


def test_a_list_of_nothing_says_so(tmp_path: Path) -> None:
    write(tmp_path, {"empty.py": "from gemel import Server\nserver = Server('empty')"})
    assert gemel("list", "empty.py", cwd=tmp_path).stdout.endswith(
        "\n\nIt offers nothing: no tools, prompts or resources.\n"
    )


LATER = """
from contextlib import asynccontextmanager
from gemel import Server

@asynccontextmanager
async def lifespan(server):
    @server.tool
    def later() -> str: return "later"
    yield

server = Server("later", lifespan=lifespan)
outer = Server("outer")
outer.mount(Server("inner"))
proxy = Server.from_client("http://127.0.0.1:1/mcp")
"""


@pytest.mark.parametrize("name", ["server", "outer", "proxy"])
def test_a_server_that_may_offer_something_later_does_not_say_so(name: str, tmp_path: Path) -> None:
    write(tmp_path, {"later.py": LATER})
    done = subprocess.run(
        [sys.executable, "-m", "gemel", "run", f"later.py:{name}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert "offers nothing" not in done.stderr


# ---------------------------------------------------------------- what is printed

LOUD = """
import os, subprocess, sys
from contextlib import asynccontextmanager
from gemel import Server

print("at import")
os.write(1, b"by number\\n")
subprocess.run([sys.executable, "-c", "print('by a child')"])

@asynccontextmanager
async def lifespan(server):
    print("as it starts")
    yield
    print("as it ends")

def make():
    print("in a factory")
    return server

server = Server("loud", lifespan=lifespan)

@server.tool
def speak() -> str:
    print("in a tool")
    return "spoken"

if __name__ == "__main__":
    server.run()
"""


@pytest.mark.parametrize("target", ["loud.py", "loud.py:make", "-m loud"])
def test_what_is_printed_never_reaches_the_client(target: str, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    words = [sys.executable, "-m", "gemel", "run", *target.split()]
    (answer,), told = answered(words, tmp_path, ("speak", {}))
    assert answer["result"]["content"][0]["text"] == "spoken"
    made = ["in a factory"] if "make" in target else []
    assert told.splitlines() == [
        *("at import", "by number", "by a child", *made, "as it starts", "in a tool", "as it ends")
    ]


QUIET = """
from contextlib import asynccontextmanager
from gemel import Server

@asynccontextmanager
async def lifespan(server):
    print("as it starts")
    yield
    print("as it ends")

server = Server("quiet", lifespan=lifespan)

@server.tool
def speak() -> str: return "spoken"

server.run()
"""


def test_what_a_lifespan_prints_never_reaches_the_client(tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text(QUIET)
    (answer,), told = answered([sys.executable, "quiet.py"], tmp_path, ("speak", {}))
    assert answer["result"]["content"][0]["text"] == "spoken"
    assert told.splitlines() == ["as it starts", "as it ends"]


def test_what_a_file_prints_is_not_in_the_output_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    done = gemel("call", "loud.py", "speak", cwd=tmp_path)
    assert done.stdout == "spoken\n"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "loud"\nversion = "1.0"\ndescription = "x"\n')
    done = gemel("registry", "loud.py", cwd=tmp_path)
    assert "at import" not in done.stdout
