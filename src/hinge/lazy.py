"""Add-ons that the core loads on use: the one table of imports that point from the core to what is built on it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: What is loaded, by the name that the core uses: module and attribute.
LAZY_IMPORTS = {
    "client_tasks": ("hinge.extensions.tasks.client", "TasksOfClient"),
    "contract_check": ("hinge.contracts.check", "ContractCheck"),
    "gateway": ("hinge.proxy.gateway", "gateway"),
    "oauth": ("hinge.auth.client.oauth", "OAuth"),
    "proxy": ("hinge.proxy.proxy", "proxy"),
    "server_from_openapi": ("hinge.openapi.server", "server_from"),
    "skills": ("hinge.extensions.skills.server", "Skills"),
}


def load(name: str) -> Any:
    """Import an entry of the table, on its first use."""
    module, attribute = LAZY_IMPORTS[name]
    return getattr(import_module(module), attribute)
