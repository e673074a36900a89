"""A server asks the person at a terminal, and is started again when its file changes."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from gemel import ElicitFormParams, Terminal

SERVER = """
from gemel import Server

server = Server("shop")
"""


def main() -> None:
    os.environ["TERM"] = "dumb"  # no escape sequences between the words
    master, slave = os.openpty()
    with open(slave, encoding="utf-8") as keyboard, open(os.dup(slave), "w", encoding="utf-8") as screen:
        terminal = Terminal(input=keyboard, output=screen)
        assert terminal.interactive
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        form = ElicitFormParams(message="Who are you?", requested_schema=schema)
        person = threading.Thread(target=answer, args=(master,))
        person.start()
        result = asyncio.run(terminal.elicit(form))
        person.join()
    os.close(master)
    assert (result.action, result.content) == ("accept", {"name": "Ann"}), result


def answer(master: int) -> None:
    """Type a name when the terminal asks for it."""
    seen = b""
    while b"name: " not in seen:
        seen += os.read(master, 65536)
    os.write(master, b"Ann\r")


def reload() -> None:
    """Change the file of a server until it has started again."""
    file = Path("shop.py")
    file.write_text(SERVER)
    command = [sys.executable, "-m", "gemel", "run", "shop.py", "--http", "--port", "0", "--reload"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        starts: list[str] = []
        reader = threading.Thread(target=read_starts, args=(process, starts))
        reader.start()
        while len(starts) < 2:
            assert process.poll() is None
            if starts:
                file.write_text(file.read_text() + "\n")
            time.sleep(0.5)
        process.terminate()
        reader.join()


def read_starts(process: subprocess.Popen[str], starts: list[str]) -> None:
    """Note the lines with the address of the server."""
    assert process.stderr is not None
    starts.extend(line for line in process.stderr if "http://" in line)


main()
reload()
