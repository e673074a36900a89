"""Rewriting programs for FastMCP 2 to 4 and for the official SDK (`mcp`) into programs for Hinge; needs `hinge[migrate]`."""

from hinge.migrate.files import FileMigration, migrate_paths
from hinge.migrate.source import Migration, Note, migrate_source

__all__ = ["FileMigration", "Migration", "Note", "migrate_paths", "migrate_source"]
