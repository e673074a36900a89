"""A real authorization server (npm's oidc-provider) on loopback, run by Node. Its pages need a browser: see login.py."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.interop.peers import copy_script, locate
from tests.interop.processes import environment

SCRIPT = Path(__file__).with_name("authorization_server.mjs")
SCOPES = ("notes", "notes.write")


def is_installed() -> bool:
    """Tell whether Node and oidc-provider are installed: `python -m tests.interop.peers node` does it."""
    peers = locate()
    return peers.node.exists() and (peers.node_modules / "oidc-provider").exists()


@dataclass(frozen=True, slots=True)
class Settings:
    """What the authorization server does. Clients and documents have the member names of RFC 7591."""

    resources: Sequence[str] = ()
    """The audiences that it issues tokens for (RFC 8707)."""
    scopes: Sequence[str] = SCOPES
    clients: Sequence[Mapping[str, Any]] = ()
    """Clients that are registered beforehand."""
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Documents that clients publish, by URL. The server fetches nothing else."""
    registration: bool = True
    client_id_metadata_document: bool = True
    algorithm: Literal["RS256", "PS256", "ES256", "EdDSA"] = "RS256"
    token_format: Literal["jwt", "opaque"] = "jwt"
    access_token_seconds: int = 300
    rotate_refresh_tokens: bool = True
    dpop_nonce: bool = False
    """Whether DPoP proofs need a nonce of the server."""
    default_resource: str | None = None
    """The audience of requests without `resource`."""
    port: int = 0
    facts: Mapping[str, Any] | None = None
    """What it does as an identity provider: a row of `tests/auth/providers.py`."""


class AuthorizationServer:
    """A running authorization server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.issuer: str = self._read()["issuer"]

    @property
    def jwks_uri(self) -> str:
        """The URL of the public keys."""
        return f"{self.issuer}/jwks"

    def grants(self) -> list[tuple[str, str]]:
        """Return what was asked of the token endpoint so far: grant types, each with "success" or the error."""
        return [(grant, outcome) for grant, outcome in self._do("grants")]

    def replace_keys(self) -> None:
        """Sign with new keys, and publish only these."""
        self._do("replace_keys")

    def revoke_grants(self) -> None:
        """Forget what users have granted, with all tokens."""
        self._do("revoke_grants")

    def forget_clients(self) -> None:
        """Forget the clients that registered themselves."""
        self._do("forget_clients")

    def change(self, **settings: Any) -> None:
        """Change settings of the running server."""
        self._do("set", settings)

    def _do(self, name: str, argument: object = None) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, argument]) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the authorization server ended with {self._process.wait()}; its log is on stderr")
        return json.loads(line)


@contextmanager
def authorization_server(settings: Settings) -> Iterator[AuthorizationServer]:
    """Run an authorization server for the length of the block; its log goes to standard error."""
    command = [str(locate().node), str(copy_script(SCRIPT)), json.dumps(asdict(settings))]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    try:
        yield AuthorizationServer(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # it ends with its input
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
