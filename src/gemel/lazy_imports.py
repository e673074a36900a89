"""Add-ons that the core loads on use: the one table of imports that point from the core to what is built on it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: What is loaded, by the name that the core uses: module and attribute.
LAZY_IMPORTS = {
    "client": ("gemel.client.client", "Client"),
    "client_tasks": ("gemel.extensions.tasks.client", "TasksOfClient"),
    "configured_oauth": ("gemel.auth.client.configured", "configured_oauth"),
    "contract_check": ("gemel.contracts.check", "ContractCheck"),
    "gateway": ("gemel.proxy.gateway", "gateway"),
    "oauth": ("gemel.auth.client.oauth", "OAuth"),
    "proxy": ("gemel.proxy.proxy", "proxy"),
    "server_from_openapi": ("gemel.openapi.server", "server_from"),
    "skills": ("gemel.extensions.skills.server", "Skills"),
}


def load(name: str) -> Any:
    """Import an entry of the table, on its first use."""
    module, attribute = LAZY_IMPORTS[name]
    return getattr(import_module(module), attribute)
