"""The conversation without I/O: plain functions and values, no async, no clock, no sockets."""
