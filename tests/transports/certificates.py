"""A certificate that nobody vouches for but its own file, for tests of TLS on either side."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1, with its key in the same file. Skips the test where there is no openssl to make it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout key.pem -out cert.pem"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], cwd=folder, check=True, capture_output=True
    )
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return both


def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
