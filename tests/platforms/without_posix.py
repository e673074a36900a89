"""Runs in a process that has what Windows has: `python without_posix.py import|memory|serve|pytest`.

What only POSIX has is taken away before Gemel is imported.
"""

import asyncio
import importlib
import io
import os
import pkgutil
import select
import shutil
import signal
import socket
import sys
import sysconfig

#: Libraries that import modules of their own on Windows, which are not here: they come first.
FOREIGN = ("shutil", "uvicorn")
MISSING_MODULES = ("fcntl", "termios", "tty", "pty", "pwd", "grp", "resource", "uvloop")
MISSING = {
    os: (
        "fork",
        "killpg",
        "waitid",
        "setsid",
        "getuid",
        "geteuid",
        "O_NONBLOCK",
        "O_NOFOLLOW",
        "O_DIRECTORY",
        "O_CLOEXEC",
        "sched_getaffinity",
    ),
    select: ("poll", "epoll"),
    signal: ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGCHLD", "SIGALRM", "setitimer", "pthread_sigmask"),
    socket: ("AF_UNIX",),
}


def become_windows() -> None:
    """Take away what Windows doesn't have."""
    sysconfig.get_config_vars()  # read once, from a module of this system
    asyncio.new_event_loop().close()  # since Python 3.14 the kind of loop is chosen with the first one
    family, pair = socket.AF_UNIX, socket.socketpair
    setattr(socket, "socketpair", lambda *arguments: pair(family))  # noqa: B010 (the event loop needs one)
    for name in MISSING_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # makes its import fail
    for module, names in MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    setattr(shutil, "_use_fd_functions", False)  # noqa: B010 (it was imported here, and opens folders with O_NONBLOCK)
    sys.platform = "win32"


def import_everything() -> None:
    """Import each module of the package whose own extras are installed."""
    import gemel

    for found in pkgutil.walk_packages(gemel.__path__, "gemel."):
        if not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except ImportError as exc:
                if "pip install 'gemel[" not in str(exc):
                    raise


def main(word: str, *arguments: str) -> None:
    for name in ("pytest", "trio") if word == "pytest" else FOREIGN:
        importlib.import_module(name)
    become_windows()
    if word == "pytest":
        import pytest

        setattr(io, "_WindowsConsoleIO", type("_WindowsConsoleIO", (), {}))  # noqa: B010 (pytest asks what a terminal is)
        sys.exit(pytest.main([*arguments]))
    if word == "import":
        import_everything()
        return
    from gemel import Client, Server

    server = Server("windows")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    if word == "serve":
        server.run()
        return

    async def use() -> None:
        async with Client(server) as client:
            print((await client.call_tool("add", {"a": 1, "b": 2})).text)

    asyncio.run(use())


main(*sys.argv[1:])
