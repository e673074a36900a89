"""Shell completion: what may stand at a place of the command line, and the scripts for the shells."""
