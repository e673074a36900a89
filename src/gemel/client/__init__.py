"""The client side: one Client for every server, era and transport. Loads no server code."""
