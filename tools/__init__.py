"""The programs behind the Makefile's targets."""
