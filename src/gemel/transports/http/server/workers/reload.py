"""Reload: the command of this process runs anew and takes over the listening sockets.

The new process loads all code again and forks workers of its own; the old workers end when the new ones are ready.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from gemel.errors import StartError
from gemel.transports.http.server.run import ListeningSocket

#: Set for a successor: the process id of its supervisor, the descriptor of the link to it, those of the listening sockets.
_VARIABLE = "GEMEL_SUCCESSOR_OF"


class StartCommand(NamedTuple):
    """How this process was started."""

    words: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]


_remembered: list[StartCommand] = []


def remember_command() -> None:
    """Remember how this process was started; call it before the working directory or the environment are changed."""
    if not _remembered:
        environment = {name: text for name, text in os.environ.items() if name != _VARIABLE}
        _remembered.append(StartCommand((sys.executable, *sys.orig_argv[1:]), os.getcwd(), environment))


def remembered_command() -> StartCommand | None:
    """Return the command that `remember_command` remembered; None if it can't run again: the program came from a terminal."""
    main = sys.modules["__main__"]
    repeatable = getattr(main, "__file__", None) or "-c" in sys.orig_argv or getattr(sys, "frozen", False)
    return _remembered[0] if _remembered and repeatable else None


class Inheritance(NamedTuple):
    """What a successor has from its supervisor."""

    link: socket.socket
    listening: list[socket.socket]


def take_inheritance() -> Inheritance | None:
    """Return what this process has inherited, if it is a successor.

    Raises:
        StartError: The descriptors are not those of sockets.
    """
    supervisor, *descriptors = os.environ.pop(_VARIABLE, "0").split()
    if int(supervisor) != os.getppid():
        return None  # the variable was meant for another process
    try:
        link, *listening = (int(each) for each in descriptors)
        return Inheritance(socket.socket(fileno=link), [_adopt(each) for each in listening])
    except (ValueError, OSError) as exc:
        raise StartError(f"{_VARIABLE} is set by Gemel itself, for a reload: leave it out") from exc


def _adopt(descriptor: int) -> ListeningSocket:
    listening = ListeningSocket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    listening.setblocking(False)
    return listening


def become_successor(command: StartCommand, link: socket.socket, listening: Sequence[socket.socket]) -> NoReturn:
    """Run a command in place of this process, which was forked for it."""
    descriptors = [each.fileno() for each in (link, *listening)]
    for each in descriptors:
        os.set_inheritable(each, True)
    os.chdir(command.directory)
    words = " ".join(map(str, (os.getppid(), *descriptors)))
    os.execve(command.words[0], command.words, {**command.environment, _VARIABLE: words})
