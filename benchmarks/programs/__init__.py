"""The programs that are measured; each one runs in its own process, peers in the environment of the peers."""
