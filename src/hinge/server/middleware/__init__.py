"""Middleware that comes with Hinge."""
