"""Checks the configuration that documents show with the program that reads it; skips where that is not installed."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.programs import require

#: https://docs.docker.com/reference/dockerfile/
_INSTRUCTIONS = frozenset(
    {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK"}
    | {"LABEL", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)


def check(language: str, text: str, directory: Path) -> None:
    """Fail if the text can't be read by what it is for.

    Args:
        language: The language of the block.
        text: The text, with addresses and paths that are there.
        directory: Where files may be written.
    """
    CHECKS[language](text, directory)


def _json(text: str, directory: Path) -> None:
    json.loads(text)


def _toml(text: str, directory: Path) -> None:
    tomllib.loads(text)


def _yaml(text: str, directory: Path) -> None:
    """Several documents; those of Kubernetes name what they are."""
    yaml = pytest.importorskip("yaml")
    found = list(yaml.safe_load_all(text))
    assert found
    assert all(found)
    for one in found:
        if "apiVersion" in one:
            assert one["kind"]
            assert one["metadata"]["name"]


def _sh(text: str, directory: Path) -> None:
    done = subprocess.run(["/bin/sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def _dockerfile(text: str, directory: Path) -> None:
    lines = re.sub(r"\\\n", " ", text).split("\n")
    words = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    assert set(words) <= _INSTRUCTIONS, set(words) - _INSTRUCTIONS
    assert words[0] in ("FROM", "ARG")


def _nginx(text: str, directory: Path) -> None:
    """`location` blocks are put into a server, servers into `http`."""
    (directory / "checked.conf").write_text(nginx_file(text, directory), encoding="utf-8")
    command = [require("nginx"), "-t", "-q", "-p", str(directory), "-c", str(directory / "checked.conf")]
    done = subprocess.run([*command, "-e", "stderr"], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def _haproxy(text: str, directory: Path) -> None:
    (directory / "checked.cfg").write_text(f"{text}\n", encoding="utf-8")
    command = [require("haproxy"), "-c", "-q", "-f", str(directory / "checked.cfg")]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def nginx_file(text: str, directory: Path) -> str:
    """A whole configuration with this part of one, that writes below `directory` only."""
    if re.search(r"^location", text, re.MULTILINE) and "server {" not in text:
        text = f"server {{\nlisten 127.0.0.1:8080;\n{text}\n}}"
    folders = "".join(
        f"{name}_temp_path {directory}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"pid {directory}/nginx.pid;\nerror_log stderr;\ndaemon off;\nworker_processes 1;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{folders}{text}\n}}\n"
    )


def _systemd(text: str, directory: Path) -> None:
    """`systemd-analyze verify`; programs and users of the example need not be on this machine."""
    assert re.search(r"^\[(Service|Socket|Timer)\]$", text, re.MULTILINE)
    unit = directory / "checked.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE), encoding="utf-8")
    done = subprocess.run(
        [require("systemd-analyze"), "verify", str(unit)], text=True, capture_output=True, check=False
    )
    about = [line for line in done.stderr.splitlines() if "checked.service" in line]
    assert not about, done.stderr


#: Languages of configuration.
CHECKS: Mapping[str, Callable[[str, Path], None]] = {
    "json": _json,
    "toml": _toml,
    "yaml": _yaml,
    "sh": _sh,
    "dockerfile": _dockerfile,
    "nginx": _nginx,
    "haproxy": _haproxy,
    "systemd": _systemd,
}
