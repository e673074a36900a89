"""Authorization of a client at servers."""
