"""Callbacks of a client for people at a terminal: forms, pages, sampling requests, and the display of results."""
