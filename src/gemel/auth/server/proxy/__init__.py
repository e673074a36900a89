"""The OAuth proxy: our own authorization endpoints in front of an identity provider that knows no dynamic registration."""
