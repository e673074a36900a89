"""Several processes that serve the same app on the same port. POSIX only."""
