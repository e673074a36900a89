"""The clients of other SDKs, as programs that log in: see tests/interop/foreign/client_auth_python.py."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.auth.real.browser import Page
from tests.auth.real.login import Person
from tests.interop.peers import locate, script
from tests.interop.processes import environment

CLIENTS = ("python", "typescript")


def command_of(client: str) -> list[str]:
    """Return the command line of a foreign client, without arguments."""
    peers = locate()
    programs = {
        "python": [str(peers.peers_python), str(script("client_auth_python.py"))],
        "typescript": [str(peers.node), str(script("client_auth_typescript.mjs"))],
    }
    return programs[client]


class ForeignClient:
    """A running foreign client.

    Attributes:
        authorized: The authorization URLs that it has asked for.
    """

    def __init__(self, process: subprocess.Popen[str], callback: str, page: Page | None, person: Person) -> None:
        self._process = process
        self._callback = callback
        self._page = page
        self._person = person
        self.authorized: list[str] = []

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool on a connection of its own; the person logs in when the client asks for it.

        Returns:
            `{"result": {"texts": …, "is_error": …, "revision": …}}` or `{"error": …}`.
        """
        answer = self._ask({"call": tool, "arguments": arguments})
        while "authorize" in answer:
            self.authorized.append(answer["authorize"])
            assert self._page is not None
            answer = self._ask({"callback": self._person.authorize(self._page, answer["authorize"], self._callback)})
        return answer

    def _ask(self, message: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the foreign client ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def foreign_client(
    client: str,
    url: str,
    era: str,
    callback: str,
    *options: str,
    page: Page | None = None,
    person: Person = Person(),  # noqa: B008 - frozen
) -> Iterator[ForeignClient]:
    """Run a foreign client for the length of the block.

    Args:
        client: One of `CLIENTS`.
        url: The MCP server.
        era: "2025" or "2026".
        callback: The redirect URI. Nobody need listen there. Or "--credentials", followed by an id and a secret.
        options: Further arguments.
        page: Where the person logs in.
        person: Who logs in.
    """
    command: Sequence[str] = [*command_of(client), url, era, callback, *options]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield ForeignClient(process, callback, page, person)
    finally:
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
