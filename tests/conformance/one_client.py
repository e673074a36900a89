"""Runs the client under test, and writes its exit status where the runner looks: the suite itself does not judge it.

The suite starts the clients of all scenarios at once, and serves them from one process, which closes idle connections that it
had no time to read from. So only a few clients run at a time.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

AT_A_TIME = 6


def main() -> int:
    """Wait for a turn and run the command line."""
    exits = Path(os.environ["CONFORMANCE_EXITS"])
    with exits.with_name(f"turn-{os.getpid() % AT_A_TIME}").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        status = subprocess.call(sys.argv[1:])
    (exits / os.environ["MCP_CONFORMANCE_SCENARIO"].replace("/", "+")).write_text(str(status))
    return status


if __name__ == "__main__":
    sys.exit(main())
