# lists: echo
# differs: nothing is registered
# becomes: issuer=DOMAIN.rstrip('/')
# becomes: audience=BASE.rstrip('/') + '/mcp'
# becomes: issuer=["https://env.scalekit.com/resources/res_1", "https://env.scalekit.com"]
# becomes: issuer="https://project.supabase.co/auth/v1"
# becomes: audience="authenticated"
# becomes: algorithms=["ES256"]
# becomes: audience=["client", "api://client"]
# becomes: issuer="https://api.descope.com/v1/apps/P1"
# notes: tokens are accepted from this issuer only
from fastmcp import FastMCP
from fastmcp.server.auth.providers.azure import AzureJWTVerifier
from fastmcp.server.auth.providers.descope import DescopeProvider
from fastmcp.server.auth.providers.scalekit import ScalekitProvider
from fastmcp.server.auth.providers.supabase import SupabaseProvider
from fastmcp.server.auth.providers.workos import AuthKitProvider

BASE = "http://127.0.0.1:8000/"
DOMAIN = "https://notes.authkit.app/"
SCOPES = None

mcp = FastMCP("notes", auth=AuthKitProvider(authkit_domain=DOMAIN, base_url=BASE, required_scopes=SCOPES))
scalekit = FastMCP(
    "scalekit",
    auth=ScalekitProvider(environment_url="https://env.scalekit.com/", resource_id="res_1", base_url=BASE),
)
supabase = FastMCP("supabase", auth=SupabaseProvider(project_url="https://project.supabase.co", base_url=BASE))
descope = FastMCP(
    "descope", auth=DescopeProvider(project_id="P1", descope_base_url="api.descope.com", base_url=BASE)
)
entra = FastMCP("entra", auth=AzureJWTVerifier(client_id="client", tenant_id="tenant", required_scopes=["read"]))


@mcp.tool
def echo(text: str) -> str:
    return text
