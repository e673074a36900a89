"""Official protocol extensions, each an object that a server or client adds."""
