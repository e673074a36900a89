"""The tests of Hinge: the same tree as `src/hinge`, and the tests on the shape of the code itself."""
