# lists: echo
# only: rewrite
# becomes: user_pool="eu-central-1_AbCdEfGhI"
# becomes: Cognito(
# becomes: url=(os.environ.get("BASE") or "http://127.0.0.1").rstrip('/') + '/mcp'
# notes: allow=
import os

from fastmcp import FastMCP
from fastmcp.server.auth.providers.aws import AWSCognitoProvider

mcp = FastMCP(
    "pool",
    auth=AWSCognitoProvider(
        user_pool_id="eu-central-1_AbCdEfGhI",
        aws_region="eu-central-1",
        client_id="0123",
        client_secret="a-secret",
        base_url=os.environ.get("BASE") or "http://127.0.0.1",
    ),
)
