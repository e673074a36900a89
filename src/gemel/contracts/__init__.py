"""What a server offers, written down: fingerprints, the lock file, and what a change of it means. Connects to nothing."""
