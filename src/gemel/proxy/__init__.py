"""A proxy: a server that offers what another server offers, to clients of both eras."""
