"""Authorization: a resource server and an OAuth proxy, an OAuth client, and what they share.

Importing this module imports nothing else: each name is loaded when it is first used.
"""

TYPE_CHECKING = False  # see hinge/__init__.py

if TYPE_CHECKING:
    from hinge.auth.client.oauth import OAuth as OAuth
    from hinge.auth.client.registration import client_metadata as client_metadata
    from hinge.auth.client.stores import MemoryTokenStore as MemoryTokenStore
    from hinge.auth.client.tokens import Tokens as Tokens
    from hinge.auth.client.tokens import TokenStore as TokenStore
    from hinge.auth.client.user import Authorizer as Authorizer
    from hinge.auth.client.user import BrowserLogin as BrowserLogin
    from hinge.auth.client.user import CallbackLogin as CallbackLogin
    from hinge.auth.client.user import PasteLogin as PasteLogin
    from hinge.auth.jose import TokenInvalid as TokenInvalid
    from hinge.auth.server.exchange import TokenExchange as TokenExchange
    from hinge.auth.server.resource import TokenAuth as TokenAuth
    from hinge.auth.server.static import StaticTokens as StaticTokens

_HOME = {
    "Authorizer": "hinge.auth.client.user",
    "BrowserLogin": "hinge.auth.client.user",
    "CallbackLogin": "hinge.auth.client.user",
    "MemoryTokenStore": "hinge.auth.client.stores",
    "OAuth": "hinge.auth.client.oauth",
    "PasteLogin": "hinge.auth.client.user",
    "StaticTokens": "hinge.auth.server.static",
    "TokenAuth": "hinge.auth.server.resource",
    "TokenExchange": "hinge.auth.server.exchange",
    "TokenInvalid": "hinge.auth.jose",
    "TokenStore": "hinge.auth.client.tokens",
    "Tokens": "hinge.auth.client.tokens",
    "client_metadata": "hinge.auth.client.registration",
}

__all__ = tuple(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]  # as in hinge/__init__.py

if not TYPE_CHECKING:

    def __getattr__(name):
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'hinge.auth' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(home), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOME})
