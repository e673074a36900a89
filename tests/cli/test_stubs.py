"""The command stubs, as a real process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source import ROOT

SERVER = '''
from dataclasses import dataclass

from gemel import Server

server = Server("corner shop", version="3")


@dataclass
class Offer:
    item: str
    price: float


@server.tool
def offers(item: str, count: int = 1) -> list[Offer]:
    """What something costs."""
    return [Offer(item, 2.5)] * count
'''
USE = """
from __future__ import annotations

import asyncio

from shop_stubs import CornerShop

from gemel import Client


async def main() -> None:
    async with Client("shop_server.py") as client:
        shop = CornerShop(client)
        print([offer.price * 2 for offer in await shop.offers("tea", count=2)])


asyncio.run(main())
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "shop_server.py").write_text(SERVER + "\n\nserver.run()\n")
    return tmp_path


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A program, run to its end."""
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.timeout(120)  # mypy reads all that the module imports
def test_a_module_is_printed_typed_and_used(place: Path) -> None:
    done = run(place, "-m", "gemel", "stubs", "shop_server.py")
    assert (done.returncode, done.stderr) == (0, "")
    (place / "shop_stubs.py").write_text(done.stdout)
    (place / "use.py").write_text(USE)
    assert run(place, "use.py").stdout == "[5.0, 5.0]\n"
    mypy = ("-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(ROOT / ".mypy_cache" / "strict"))
    (place / "wrong.py").write_text(USE.replace('"tea"', "3").replace("offer.price", "offer.prise"))
    said = run(place, *mypy, "use.py", "shop_stubs.py", "wrong.py").stdout
    assert 'has incompatible type "int"; expected "str"' in said
    assert '"Offer" has no attribute "prise"' in said
    assert all(line.startswith(("wrong.py:", "Found 2 errors in 1 file")) for line in said.splitlines()), said


def test_the_module_may_be_without_async_and_of_another_name(place: Path) -> None:
    done = run(place, "-m", "gemel", "stubs", "shop_server.py", "--sync", "--name", "Shop")
    assert "class Shop:" in done.stdout
    assert "from gemel.sync import Client" in done.stdout
    assert "async" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["shop_server.py", "--name", "corner shop"],
            "'corner shop' can't be the name of the class: use letters, digits and _",
        ),
        (["gone.py"], ""),
        (["http://127.0.0.1:9/mcp"], ""),
        (["servers.json"], "servers.json can't be read: No such file or directory"),
    ],
)
def test_a_mistake_gets_one_line(place: Path, words: list[str], said: str) -> None:
    done = run(place, "-m", "gemel", "stubs", *words)
    assert done.stderr.strip().splitlines()[-1].startswith(f"gemel: {said}")
    assert "Traceback" not in done.stderr
    assert (done.returncode, done.stdout) == (1, "")
