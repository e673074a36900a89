"""The tests of Gemel: the same tree as `src/gemel`, and the tests on the shape of the code itself."""
