"""Authorization: a resource server and an OAuth proxy, an OAuth client, and what they share.

Importing this module imports nothing else: each name is loaded when it is first used.
"""

TYPE_CHECKING = False  # see gemel/__init__.py

if TYPE_CHECKING:
    from gemel.auth.client.device import DeviceLogin as DeviceLogin
    from gemel.auth.client.dpop import DPoP as DPoP
    from gemel.auth.client.machine import ClientCredentials as ClientCredentials
    from gemel.auth.client.machine import EnterpriseAuth as EnterpriseAuth
    from gemel.auth.client.machine import WorkloadIdentity as WorkloadIdentity
    from gemel.auth.client.oauth import OAuth as OAuth
    from gemel.auth.client.registration import client_metadata as client_metadata
    from gemel.auth.client.stores import BackendTokenStore as BackendTokenStore
    from gemel.auth.client.stores import FileTokenStore as FileTokenStore
    from gemel.auth.client.stores import MemoryTokenStore as MemoryTokenStore
    from gemel.auth.client.tokens import Tokens as Tokens
    from gemel.auth.client.tokens import TokenStore as TokenStore
    from gemel.auth.client.tokens import TokenStoreError as TokenStoreError
    from gemel.auth.client.user import Authorizer as Authorizer
    from gemel.auth.client.user import BrowserLogin as BrowserLogin
    from gemel.auth.client.user import CallbackLogin as CallbackLogin
    from gemel.auth.client.user import PasteLogin as PasteLogin
    from gemel.auth.client.workload import AwsToken as AwsToken
    from gemel.auth.client.workload import AzureToken as AzureToken
    from gemel.auth.client.workload import EnvironmentToken as EnvironmentToken
    from gemel.auth.client.workload import FileToken as FileToken
    from gemel.auth.client.workload import GcpToken as GcpToken
    from gemel.auth.client.workload import GitHubActionsToken as GitHubActionsToken
    from gemel.auth.client.workload import KubernetesToken as KubernetesToken
    from gemel.auth.client.workload import WorkloadToken as WorkloadToken
    from gemel.auth.jose import TokenInvalid as TokenInvalid
    from gemel.auth.server.dpop import DPoPProofs as DPoPProofs
    from gemel.auth.server.exchange import TokenExchange as TokenExchange
    from gemel.auth.server.introspection import IntrospectionAuth as IntrospectionAuth
    from gemel.auth.server.jwt import JWTAuth as JWTAuth
    from gemel.auth.server.proxy.providers import OCI as OCI
    from gemel.auth.server.proxy.providers import Auth0 as Auth0
    from gemel.auth.server.proxy.providers import Clerk as Clerk
    from gemel.auth.server.proxy.providers import Cognito as Cognito
    from gemel.auth.server.proxy.providers import Discord as Discord
    from gemel.auth.server.proxy.providers import EntraID as EntraID
    from gemel.auth.server.proxy.providers import GitHub as GitHub
    from gemel.auth.server.proxy.providers import Google as Google
    from gemel.auth.server.proxy.providers import HuggingFace as HuggingFace
    from gemel.auth.server.proxy.providers import Keycloak as Keycloak
    from gemel.auth.server.proxy.providers import Okta as Okta
    from gemel.auth.server.proxy.providers import OpenID as OpenID
    from gemel.auth.server.proxy.providers import Provider as Provider
    from gemel.auth.server.proxy.providers import WorkOS as WorkOS
    from gemel.auth.server.proxy.proxy import OAuthProxy as OAuthProxy
    from gemel.auth.server.resource import TokenAuth as TokenAuth
    from gemel.auth.server.static import StaticTokens as StaticTokens

_HOME = {
    "Auth0": "gemel.auth.server.proxy.providers",
    "Authorizer": "gemel.auth.client.user",
    "AwsToken": "gemel.auth.client.workload",
    "AzureToken": "gemel.auth.client.workload",
    "BackendTokenStore": "gemel.auth.client.stores",
    "BrowserLogin": "gemel.auth.client.user",
    "CallbackLogin": "gemel.auth.client.user",
    "Clerk": "gemel.auth.server.proxy.providers",
    "ClientCredentials": "gemel.auth.client.machine",
    "Cognito": "gemel.auth.server.proxy.providers",
    "DPoP": "gemel.auth.client.dpop",
    "DPoPProofs": "gemel.auth.server.dpop",
    "DeviceLogin": "gemel.auth.client.device",
    "Discord": "gemel.auth.server.proxy.providers",
    "EnterpriseAuth": "gemel.auth.client.machine",
    "EntraID": "gemel.auth.server.proxy.providers",
    "EnvironmentToken": "gemel.auth.client.workload",
    "FileToken": "gemel.auth.client.workload",
    "FileTokenStore": "gemel.auth.client.stores",
    "GcpToken": "gemel.auth.client.workload",
    "GitHub": "gemel.auth.server.proxy.providers",
    "GitHubActionsToken": "gemel.auth.client.workload",
    "Google": "gemel.auth.server.proxy.providers",
    "HuggingFace": "gemel.auth.server.proxy.providers",
    "IntrospectionAuth": "gemel.auth.server.introspection",
    "JWTAuth": "gemel.auth.server.jwt",
    "Keycloak": "gemel.auth.server.proxy.providers",
    "KubernetesToken": "gemel.auth.client.workload",
    "MemoryTokenStore": "gemel.auth.client.stores",
    "OAuth": "gemel.auth.client.oauth",
    "OAuthProxy": "gemel.auth.server.proxy.proxy",
    "OCI": "gemel.auth.server.proxy.providers",
    "Okta": "gemel.auth.server.proxy.providers",
    "OpenID": "gemel.auth.server.proxy.providers",
    "PasteLogin": "gemel.auth.client.user",
    "Provider": "gemel.auth.server.proxy.providers",
    "StaticTokens": "gemel.auth.server.static",
    "TokenAuth": "gemel.auth.server.resource",
    "TokenExchange": "gemel.auth.server.exchange",
    "TokenInvalid": "gemel.auth.jose",
    "TokenStore": "gemel.auth.client.tokens",
    "TokenStoreError": "gemel.auth.client.tokens",
    "Tokens": "gemel.auth.client.tokens",
    "WorkOS": "gemel.auth.server.proxy.providers",
    "WorkloadIdentity": "gemel.auth.client.machine",
    "WorkloadToken": "gemel.auth.client.workload",
    "client_metadata": "gemel.auth.client.registration",
}

__all__ = tuple(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]  # as in gemel/__init__.py

if not TYPE_CHECKING:

    def __getattr__(name):
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'gemel.auth' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(home), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOME})
