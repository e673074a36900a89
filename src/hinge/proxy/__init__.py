"""A server that offers what another server offers, to clients of either era."""
