"""Authorization: a resource server and an OAuth proxy, an OAuth client, and what they share.

Importing this module imports nothing else: each name is loaded when it is first used.
"""

TYPE_CHECKING = False  # see hinge/__init__.py

if TYPE_CHECKING:
    from hinge.auth.client.device import DeviceLogin as DeviceLogin
    from hinge.auth.client.dpop import DPoP as DPoP
    from hinge.auth.client.machine import ClientCredentials as ClientCredentials
    from hinge.auth.client.machine import EnterpriseAuth as EnterpriseAuth
    from hinge.auth.client.machine import WorkloadIdentity as WorkloadIdentity
    from hinge.auth.client.oauth import OAuth as OAuth
    from hinge.auth.client.registration import client_metadata as client_metadata
    from hinge.auth.client.stores import BackendTokenStore as BackendTokenStore
    from hinge.auth.client.stores import FileTokenStore as FileTokenStore
    from hinge.auth.client.stores import MemoryTokenStore as MemoryTokenStore
    from hinge.auth.client.tokens import Tokens as Tokens
    from hinge.auth.client.tokens import TokenStore as TokenStore
    from hinge.auth.client.tokens import TokenStoreError as TokenStoreError
    from hinge.auth.client.user import Authorizer as Authorizer
    from hinge.auth.client.user import BrowserLogin as BrowserLogin
    from hinge.auth.client.user import CallbackLogin as CallbackLogin
    from hinge.auth.client.user import PasteLogin as PasteLogin
    from hinge.auth.client.workload import AwsToken as AwsToken
    from hinge.auth.client.workload import AzureToken as AzureToken
    from hinge.auth.client.workload import EnvironmentToken as EnvironmentToken
    from hinge.auth.client.workload import FileToken as FileToken
    from hinge.auth.client.workload import GcpToken as GcpToken
    from hinge.auth.client.workload import GitHubActionsToken as GitHubActionsToken
    from hinge.auth.client.workload import KubernetesToken as KubernetesToken
    from hinge.auth.client.workload import WorkloadToken as WorkloadToken
    from hinge.auth.jose import TokenInvalid as TokenInvalid
    from hinge.auth.server.dpop import DPoPProofs as DPoPProofs
    from hinge.auth.server.exchange import TokenExchange as TokenExchange
    from hinge.auth.server.introspection import IntrospectionAuth as IntrospectionAuth
    from hinge.auth.server.jwt import JWTAuth as JWTAuth
    from hinge.auth.server.proxy.providers import Auth0 as Auth0
    from hinge.auth.server.proxy.providers import Cognito as Cognito
    from hinge.auth.server.proxy.providers import Discord as Discord
    from hinge.auth.server.proxy.providers import EntraID as EntraID
    from hinge.auth.server.proxy.providers import GitHub as GitHub
    from hinge.auth.server.proxy.providers import Google as Google
    from hinge.auth.server.proxy.providers import Keycloak as Keycloak
    from hinge.auth.server.proxy.providers import Okta as Okta
    from hinge.auth.server.proxy.providers import OpenID as OpenID
    from hinge.auth.server.proxy.providers import Provider as Provider
    from hinge.auth.server.proxy.providers import WorkOS as WorkOS
    from hinge.auth.server.proxy.proxy import OAuthProxy as OAuthProxy
    from hinge.auth.server.resource import TokenAuth as TokenAuth
    from hinge.auth.server.static import StaticTokens as StaticTokens

_HOME = {
    "Auth0": "hinge.auth.server.proxy.providers",
    "Authorizer": "hinge.auth.client.user",
    "AwsToken": "hinge.auth.client.workload",
    "AzureToken": "hinge.auth.client.workload",
    "BackendTokenStore": "hinge.auth.client.stores",
    "BrowserLogin": "hinge.auth.client.user",
    "CallbackLogin": "hinge.auth.client.user",
    "ClientCredentials": "hinge.auth.client.machine",
    "Cognito": "hinge.auth.server.proxy.providers",
    "DPoP": "hinge.auth.client.dpop",
    "DPoPProofs": "hinge.auth.server.dpop",
    "DeviceLogin": "hinge.auth.client.device",
    "Discord": "hinge.auth.server.proxy.providers",
    "EnterpriseAuth": "hinge.auth.client.machine",
    "EntraID": "hinge.auth.server.proxy.providers",
    "EnvironmentToken": "hinge.auth.client.workload",
    "FileToken": "hinge.auth.client.workload",
    "FileTokenStore": "hinge.auth.client.stores",
    "GcpToken": "hinge.auth.client.workload",
    "GitHub": "hinge.auth.server.proxy.providers",
    "GitHubActionsToken": "hinge.auth.client.workload",
    "Google": "hinge.auth.server.proxy.providers",
    "IntrospectionAuth": "hinge.auth.server.introspection",
    "JWTAuth": "hinge.auth.server.jwt",
    "Keycloak": "hinge.auth.server.proxy.providers",
    "KubernetesToken": "hinge.auth.client.workload",
    "MemoryTokenStore": "hinge.auth.client.stores",
    "OAuth": "hinge.auth.client.oauth",
    "OAuthProxy": "hinge.auth.server.proxy.proxy",
    "Okta": "hinge.auth.server.proxy.providers",
    "OpenID": "hinge.auth.server.proxy.providers",
    "PasteLogin": "hinge.auth.client.user",
    "Provider": "hinge.auth.server.proxy.providers",
    "StaticTokens": "hinge.auth.server.static",
    "TokenAuth": "hinge.auth.server.resource",
    "TokenExchange": "hinge.auth.server.exchange",
    "TokenInvalid": "hinge.auth.jose",
    "TokenStore": "hinge.auth.client.tokens",
    "TokenStoreError": "hinge.auth.client.tokens",
    "Tokens": "hinge.auth.client.tokens",
    "WorkOS": "hinge.auth.server.proxy.providers",
    "WorkloadIdentity": "hinge.auth.client.machine",
    "WorkloadToken": "hinge.auth.client.workload",
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
