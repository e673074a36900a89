"""APIs that an OpenAPI document describes as tools: `gemel.openapi.server_from(document)`."""

from gemel.openapi.client import ApiResponse
from gemel.openapi.operation import Operation
from gemel.openapi.server import server_from

__all__ = ["ApiResponse", "Operation", "server_from"]
