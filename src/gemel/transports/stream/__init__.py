"""Channels over byte streams: stdio, child processes, sockets."""
