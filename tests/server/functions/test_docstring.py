"""Docstrings: three styles, what leaves the description and what stays, and that no text makes it fail."""

from hypothesis import given
from hypothesis import strategies as st

from gemel.server.functions.docstring import parse_docstring


def test_google_style_gives_arguments_result_and_description() -> None:
    found = parse_docstring(
        """Forecast for a city.

        Body: with a colon.

        Args:
            city (str): name of the city,
                wrapped: with a colon
            days (int, optional): how many days
            *rest: more

        Returns:
            list[Day]: the days

        Raises:
            ValueError: if there is no such city
        """
    )
    assert found.description == "Forecast for a city.\n\nBody: with a colon."
    assert found.arguments == {
        "city": "name of the city, wrapped: with a colon",
        "days": "how many days",
        "rest": "more",
    }
    assert found.returns == "the days"


def test_numpy_style_gives_the_same() -> None:
    found = parse_docstring(
        """Forecast for a city.

        Parameters
        ----------
        city : str
            Name of the city,
            wrapped.
        x, y : int
            Coordinates.
        bare
            Without type.

        Returns
        -------
        list of Day
            The days.

        Raises
        ------
        ValueError
            If there is none.
        """
    )
    assert found.description == "Forecast for a city."
    assert found.arguments == {
        "city": "Name of the city, wrapped.",
        "x": "Coordinates.",
        "y": "Coordinates.",
        "bare": "Without type.",
    }
    assert found.returns == "The days."


def test_sphinx_style_gives_the_same() -> None:
    found = parse_docstring(
        """Forecast for a city.

        :param city: name of
            the city
        :param int days: how many: at most ten
        :type city: str
        :returns: the days
        :rtype: list[Day]
        :raises ValueError: if there is none
        """
    )
    assert found.description == "Forecast for a city."
    assert found.arguments == {"city": "name of the city", "days": "how many: at most ten"}
    assert found.returns == "the days"


def test_epytext_fields_are_read_like_sphinx_fields() -> None:
    assert parse_docstring("Do.\n\n@param city: the city").arguments == {"city": "the city"}


def test_styles_may_be_mixed_in_one_docstring() -> None:
    found = parse_docstring("Do.\n\nArgs:\n    a: one\n\n:param b: two\n")
    assert (found.description, found.arguments) == ("Do.", {"a": "one", "b": "two"})


def test_other_sections_stay_in_the_description() -> None:
    found = parse_docstring("Do.\n\nNote:\n    keep this\n\nArgs:\n    a: one\n\nExample:\n    do(1)\n")
    assert found.description == "Do.\n\nNote:\n    keep this\n\nExample:\n    do(1)"


def test_numpy_sections_that_tell_a_model_something_stay() -> None:
    found = parse_docstring("Do.\n\nParameters\n----------\na : int\n    One.\n\nExamples\n--------\n>>> do(1)\n")
    assert found.description == "Do.\n\nExamples\n--------\n>>> do(1)"


def test_prose_after_a_section_belongs_to_the_description() -> None:
    for section in ("Args:\n    a: one", "Parameters\n----------\na : int\n    one"):
        found = parse_docstring(f"Do.\n\n{section}\n\nTrailing prose, with more.")
        assert (found.description, found.arguments) == ("Do.\n\nTrailing prose, with more.", {"a": "one"})


def test_paragraphs_and_list_items_of_an_argument_keep_their_lines() -> None:
    found = parse_docstring(
        "Do.\n\nArgs:\n    a: one\n        of:\n        - x\n        - y\n\n        More.\n    b: two"
    )
    assert found.arguments == {"a": "one of:\n- x\n- y\n\nMore.", "b": "two"}


def test_code_in_fences_is_left_alone() -> None:
    text = "Do.\n\n```yaml\nArgs:\n  a: no\n```"
    assert parse_docstring(text) == (text, {}, None)
    found = parse_docstring(
        "Do.\n\nArgs:\n    q: like\n        ```\n        Args:\n          x: 1\n        ```\n    n: max"
    )
    assert found.arguments == {"q": "like\n```\nArgs:\n  x: 1\n```", "n": "max"}


def test_items_that_were_not_indented_are_found() -> None:
    found = parse_docstring("Do.\n\nArgs:\na: one\nb: two\n\nMore.")
    assert (found.description, found.arguments) == ("Do.\n\nMore.", {"a": "one", "b": "two"})


def test_items_may_use_a_dash_for_the_colon() -> None:
    assert parse_docstring("Do.\n\nArgs:\n    a - one\n    b – two").arguments == {"a": "one", "b": "two"}


def test_colons_in_prose_start_no_section() -> None:
    for text in ("Args: none.", "Do it. Returns: nothing.", "Fetch http://host:80/", "Note: x", ":note: x", "Args:"):
        assert parse_docstring(text) == (text, {}, None)


def test_a_result_in_one_line_is_found() -> None:
    assert parse_docstring("Do.\n\nReturns: the days") == ("Do.", {}, "the days")


def test_a_colon_in_the_result_is_no_type() -> None:
    assert parse_docstring("Do.\n\nReturns:\n    What came of it: the days").returns == "What came of it: the days"
    assert parse_docstring("Do.\n\nReturns:\n    dict[str, int]: sizes").returns == "sizes"


def test_a_class_docstring_tells_its_attributes() -> None:
    found = parse_docstring("A day.\n\nAttributes:\n    temp: degrees")
    assert (found.description, found.arguments) == ("A day.", {"temp": "degrees"})


def test_no_docstring_is_no_description() -> None:
    assert parse_docstring(None) == parse_docstring("") == parse_docstring("  \n ") == (None, {}, None)


_LINES = st.sampled_from(
    [
        "",
        "Do.",
        "Args:",
        "    a: one",
        "        more",
        "a : int",
        "----------",
        "Parameters",
        "Returns",
        ":param x: y",
        "```",
    ]
)


@given(st.lists(_LINES | st.text(max_size=12), max_size=12).map("\n".join))
def test_any_text_is_read_and_nothing_is_invented(text: str) -> None:
    found = parse_docstring(text)
    words = "".join(text.split())
    for part in (found.description or "", found.returns or "", *found.arguments.values()):
        assert all(word in words for word in part.split())
