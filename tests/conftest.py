"""What holds for every test: it leaves nothing behind, and what Hinge sends in it is of its revision."""

pytest_plugins = ("tests.leftovers", "tests.wire_watch")
