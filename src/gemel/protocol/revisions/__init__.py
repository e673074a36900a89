"""Adapting a message to an older protocol revision."""
