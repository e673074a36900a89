"""What is inspected, as the command line describes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemel.transports.http.client.options import Network


@dataclass(frozen=True)
class DevTarget:
    """A server to inspect.

    Attributes:
        name: A short name for people.
        open: Returns the target of a client and the options of its transport; called for each connection, with a function
            for the lines that a child process writes to standard error.
        words: The TARGET of a command line, with its options.
        arguments: The arguments for the program.
        place: What a client in a program connects to: a URL, a file or a command line.
        is_own: Whether it is a Python file or module, which `gemel run` serves.
        changes: Yields the changed source files, to start the program again; None if that is not wanted.
        lock: Where a lock file may be.
        authorize: Makes the authorization of logins that the page starts, from an `Authorizer`; None where there are none.
        network: How these logins reach their servers; directly by default.
    """

    name: str
    open: Callable[[Callable[[str], object]], tuple[Any, dict[str, Any]]]
    words: Sequence[str] = ()
    arguments: Sequence[str] = ()
    place: str = ""
    is_own: bool = False
    changes: Callable[[], AsyncIterator[list[str]]] | None = None
    lock: Path | None = None
    authorize: Callable[[object], Any] | None = None
    network: Network | None = None
