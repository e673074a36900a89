"""The commands about what a server offers: its contract, what hosts take of it, typed modules for it."""
