"""Authorization of a server's callers."""
