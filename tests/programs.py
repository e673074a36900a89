"""Programs that tests start besides Python. No test needs one: without it, the test is skipped with a line that names it.

The tests of the documents run with `bare_path`, so that one that starts a program without asking fails on every machine.
`python -m tests.programs FOLDER` prints such a PATH, for other tests.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

#: The PATH of the whole run, whatever PATH a test has.
PATH = os.environ.get("PATH", os.defpath)
#: What every system has, by the GNU coreutils.
COREUTILS = (
    "[ arch b2sum base32 base64 basename basenc cat chcon chgrp chmod chown cksum comm cp csplit cut date dd df dir dircolors "
    "dirname du echo env expand expr factor false fmt fold groups head hostid id install join link ln logname ls md5sum mkdir "
    "mkfifo mknod mktemp mv nice nl nohup nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink realpath rm "
    "rmdir runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat stdbuf stty sum sync tac "
    "tail tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink users vdir wc who whoami yes"
)


def find(name: str) -> str | None:
    """The path of a program of this machine; None if it is not installed."""
    return shutil.which(name, path=PATH)


def require(name: str) -> str:
    """The path of a program of this machine. Without it the test is skipped."""
    __tracebackhide__ = True  # so that the summary names the line of the test
    path = find(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def bare_path(folder: Path) -> str:
    """A PATH of this Python's environment and of coreutils, which are linked into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COREUTILS.split():
        program, link = find(name), folder / name
        if program is not None and not link.is_symlink():
            link.symlink_to(program)
    return os.pathsep.join((os.path.dirname(sys.executable), str(folder)))


if __name__ == "__main__":
    print(bare_path(Path(sys.argv[1]).resolve()))
