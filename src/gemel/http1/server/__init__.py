"""HTTP/1.1 server connections."""
