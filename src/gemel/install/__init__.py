"""Write a server into the configuration of MCP hosts, and take it out again."""

from __future__ import annotations

from gemel.install.change import Change, plan_install, plan_uninstall
from gemel.install.entry import Entry, Launch, check_name, entry_for, foreign_command, name_of, own_command
from gemel.install.hosts import HOSTS, SHORT_NAMES, Host

__all__ = [
    "HOSTS",
    "SHORT_NAMES",
    "Change",
    "Entry",
    "Host",
    "Launch",
    "check_name",
    "entry_for",
    "foreign_command",
    "name_of",
    "own_command",
    "plan_install",
    "plan_uninstall",
]
