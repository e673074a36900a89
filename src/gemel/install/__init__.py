"""Write a server into the configuration of MCP hosts, and take it out again."""

from __future__ import annotations

from gemel.install.change import Change, names_that_run, plan_install, plan_uninstall
from gemel.install.entry import Entry, Launch, as_name, check_name, entry_for, foreign_command, name_of, own_command
from gemel.install.hosts import HOSTS, SHORT_NAMES, Host, found_hosts

__all__ = [
    "HOSTS",
    "SHORT_NAMES",
    "Change",
    "Entry",
    "Host",
    "Launch",
    "as_name",
    "check_name",
    "entry_for",
    "foreign_command",
    "found_hosts",
    "name_of",
    "names_that_run",
    "own_command",
    "plan_install",
    "plan_uninstall",
]
