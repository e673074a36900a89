"""APIs that an OpenAPI document describes as tools: `hinge.openapi.server_from(document)`."""

from hinge.openapi.client import ApiResponse
from hinge.openapi.operation import Operation
from hinge.openapi.server import server_from

__all__ = ["ApiResponse", "Operation", "server_from"]
