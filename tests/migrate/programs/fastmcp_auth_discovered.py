# lists: echo
# only: rewrite
# becomes: Auth0(domain="example.eu.auth0.com", audience="https://example.com"
# becomes: OpenID(issuer="https://login.example.com"
# becomes: OCI(domain=urlsplit(CONFIG).netloc
# becomes: JWTAuth(issuer=CONFIG.removesuffix('.well-known/openid-configuration')
# becomes: from urllib.parse import urlsplit
import os

from fastmcp import FastMCP
from fastmcp.server.auth.oidc_proxy import OIDCProxy
from fastmcp.server.auth.providers.auth0 import Auth0MCPProvider, Auth0Provider
from fastmcp.server.auth.providers.oci import OCIProvider

CONFIG = os.environ["CONFIG"]
APP = "0123"
BASE = "http://127.0.0.1:8000"

mcp = FastMCP(
    "auth0",
    auth=Auth0Provider(
        config_url="https://example.eu.auth0.com/.well-known/openid-configuration", client_id=APP, client_secret="a-secret", audience="https://example.com", base_url=BASE
    ),
)
openid = FastMCP(
    "openid",
    auth=OIDCProxy(config_url="https://login.example.com/.well-known/openid-configuration", client_id=APP, client_secret="a-secret", base_url=BASE),
)
oracle = FastMCP("oracle", auth=OCIProvider(config_url=CONFIG, client_id=APP, client_secret="a-secret", base_url=BASE))
direct = FastMCP("direct", auth=Auth0MCPProvider(config_url=CONFIG, base_url=BASE))


@mcp.tool
def echo(text: str) -> str:
    return text
