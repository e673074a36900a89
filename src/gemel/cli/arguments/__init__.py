"""The arguments of the commands. They are declared without what runs the commands, so that `--help` starts fast."""
