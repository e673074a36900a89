"""A certificate that nobody vouches for but its own file, for tests of TLS on either side."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def make_pair(folder: Path) -> tuple[Path, Path]:
    """The files of a certificate for 127.0.0.1, and of its key."""
    key, number, now = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number(), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"test {number % 10**9}")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), number)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files[1].write_bytes(key.private_bytes(*form))
    return files


def make_certificate(folder: Path) -> Path:
    """The same in one file."""
    certificate, key = make_pair(folder)
    both = folder / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
