"""Programs that commands run: a server in this process, or one in a child process with its environment."""
