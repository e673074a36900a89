"""Serve the standard streams of a Python program to many connections: `python forked.py PROGRAM PORT`.

The program is imported once; for each connection to the port a process is forked, whose standard streams are the connection,
and that runs `main(["stdio"])`. So a hundred connections do not cost a hundred starts of an SDK.
"""

import os
import runpy
import signal
import socket
import sys


def main() -> None:
    """Accept connections until SIGTERM."""
    program = runpy.run_path(sys.argv[1])["main"]
    listening = socket.create_server(("127.0.0.1", int(sys.argv[2])), backlog=100)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listening.close()
        for descriptor in (0, 1):
            os.dup2(connection.fileno(), descriptor)
        connection.close()
        code = 0
        try:
            program(["stdio"])
        except BaseException as exc:
            print(repr(exc), file=sys.stderr)
            code = 1
        finally:
            os._exit(code)


if __name__ == "__main__":
    main()
