"""The key of stored logins is in the keyring; the keyring of this program is a dictionary."""

import asyncio
import tempfile

import keyring
from keyring.backend import KeyringBackend
from keyring.compat import properties

from gemel.auth import FileTokenStore, Tokens

entries: dict[tuple[str, str], str] = {}


class Memory(KeyringBackend):
    """A keyring without a desktop."""

    @properties.classproperty
    def priority(cls) -> float:
        """Above others."""
        return 1.0

    def __init__(self) -> None:
        """Take no settings from the environment."""

    def get_password(self, service: str, username: str) -> str | None:
        """Look up an entry."""
        return entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep an entry."""
        entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        """Forget an entry."""
        del entries[service, username]


async def main() -> None:
    keyring.set_keyring(Memory())
    with tempfile.TemporaryDirectory() as folder:
        tokens = Tokens(access_token="secret", issuer="https://issuer.example.com")
        await FileTokenStore(folder, keyring=True).set("shop", tokens)
        assert len(entries) == 1
        assert await FileTokenStore(folder, keyring=True).get("shop") == tokens


asyncio.run(main())
