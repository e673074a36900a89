"""Middleware that comes with Gemel."""
