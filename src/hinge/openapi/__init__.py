"""HTTP APIs that are described by an OpenAPI document, offered as tools: `hinge.openapi.server_from(document)`."""

from hinge.openapi.operation import Operation
from hinge.openapi.server import Answer, server_from

__all__ = ["Answer", "Operation", "server_from"]
