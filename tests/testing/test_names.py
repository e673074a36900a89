"""The public names of `gemel.testing`."""

from __future__ import annotations

import inspect

import pytest

import gemel.testing


@pytest.mark.parametrize("name", gemel.testing.__all__)
def test_a_public_name_says_what_it_is_and_so_do_its_methods(name: str) -> None:
    value = getattr(gemel.testing, name)
    assert inspect.getdoc(value)
    for member, function in vars(value).items() if inspect.isclass(value) else ():
        if not member.startswith("_") and inspect.isroutine(function):
            assert inspect.getdoc(function), f"{name}.{member} has no docstring"


def test_the_names_are_in_order() -> None:
    assert list(gemel.testing.__all__) == sorted(gemel.testing.__all__)
