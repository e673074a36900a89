"""HTTP/1.1 client connections: pool, proxies, TLS."""
