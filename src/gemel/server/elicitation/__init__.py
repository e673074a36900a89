"""Asking the client from inside a handler: elicitation, sampling, roots, steps."""
