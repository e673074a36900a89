"""Several servers used as one client: merged lists, routed calls, configuration files."""
