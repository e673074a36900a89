"""Rewriting programs for FastMCP 2 to 4 and for the official SDK (`mcp`) into programs for Gemel; needs `gemel[migrate]`."""

from gemel.migrate.files import FileMigration, migrate_paths
from gemel.migrate.source import Migration, Note, migrate_source

__all__ = ["FileMigration", "Migration", "Note", "migrate_paths", "migrate_source"]
