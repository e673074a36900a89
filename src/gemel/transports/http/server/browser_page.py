"""What a browser shows that opens the MCP endpoint. It says nothing of the request or of the server."""

from __future__ import annotations

PAGE_TYPE = b"text/html; charset=utf-8"
PAGE = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>MCP endpoint</title>
<p>This is the endpoint of an MCP server: it answers MCP clients, not browsers.
To try it in a browser, run <code>gemel dev</code> with this address.</p>
"""
PAGE_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"vary", b"accept"),
)
