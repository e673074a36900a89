"""Servers by chance, whose every word tries to become code."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gemel import Implementation, Prompt, ResourceTemplate, Tool
from gemel.schema.prompts import PromptArgument
from gemel.stubs.module import ServerLists

#: What each of them would do if it got out of its quotes.
INJECTIONS = (
    '"""\nimport os\nos.system("touch /tmp/x")\n"""',
    "'''\nraise SystemExit\n'''",
    '")\n    raise SystemExit(1)\n#',
    "'); raise SystemExit(1)  #",
    "\\",
    '\\"""',
    '"',
    "'",
    "a\nraise SystemExit\n",
    "a\rraise SystemExit",
    "a\x0craise SystemExit",
    "a\u2028raise SystemExit",
    "\\N{BULLET}\\x41\\u0041",
    "{raise_()}",
    "# -*- coding: rot13 -*-",
    "# type: " + "ignore",
    "\u202eesrever\u2066",
    "\x00\x1b[31m",
    "\U000e0041",
    "lambda: 0",
    " leading and trailing ",
    "\ttabs\t",
    "",
)
#: Names that a module or a class needs for itself.
NAMES = (
    *("self", "list", "dict", "str", "None", "class", "def", "import", "__init__", "__class__", "_client", "_options"),
    *("given", "kind", "found", "uri", "name", "value", "UNSET", "Any", "Client", "msgspec", "Day", "options", "match"),
    *(
        "a-b",
        "a b",
        "a.b",
        "1st",
        "é",
        "日本",
        "ﬁ",
        "call_tool",
        "prompt_a",
        "read_a",
        "type",
        "True",
        "print",
        "annotations",
    ),
    *("a_rather_long_name_that_goes_on_and_on_and_on_for_ever_and_a_day", "__mangled", "_", "__", "tool", "Literal"),
)
TEXTS = st.one_of(
    st.sampled_from(INJECTIONS), st.text(st.characters(exclude_categories=["Cs"]), max_size=120), st.sampled_from(NAMES)
)
WORDS = st.one_of(st.sampled_from(NAMES), st.sampled_from(("a", "b", "city")), TEXTS)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)


def _schema(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    notes: dict[str, Any] = {"description": TEXTS, "title": TEXTS, "default": SCALARS, "format": TEXTS}
    kinds = st.sampled_from(("string", "integer", "number", "boolean", "null", "array", "object"))
    values = st.lists(SCALARS, min_size=1, max_size=4)
    return st.one_of(
        st.fixed_dictionaries({"type": st.one_of(kinds, st.lists(kinds, max_size=3))}, optional=notes),
        st.fixed_dictionaries({"enum": values}, optional=notes),
        st.fixed_dictionaries({"const": SCALARS}, optional=notes),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional=notes),
        st.fixed_dictionaries(
            {"type": st.just("array"), "prefixItems": st.lists(inner, min_size=1, max_size=3), "items": st.just(False)},
            optional={"minItems": st.integers(0, 3)},
        ),
        _object(inner),
        st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner}, optional=notes),
        st.fixed_dictionaries(
            {st_word: st.lists(inner, min_size=1, max_size=3) for st_word in ("anyOf",)}, optional=notes
        ),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"$ref": st.sampled_from(("#/$defs/Day", "#/$defs/list", "#", "elsewhere"))}),
    )


def _object(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(WORDS, inner, max_size=4)},
        optional={"required": st.lists(WORDS, max_size=3), "description": TEXTS, "additionalProperties": st.booleans()},
    )


PARTS = st.recursive(st.one_of(st.booleans(), _schema(st.booleans())), _schema, max_leaves=5)
DEFINITIONS = st.fixed_dictionaries({"Day": _object(PARTS), "list": PARTS})
INPUTS = st.builds(lambda schema, definitions: {**schema, "$defs": definitions}, _object(PARTS), DEFINITIONS)
OUTPUTS = st.one_of(
    st.none(), st.builds(lambda schema, definitions: {**schema, "$defs": definitions}, _schema(PARTS), DEFINITIONS)
)

SERVERS = st.builds(
    ServerLists,
    server=st.one_of(st.none(), st.builds(Implementation, name=WORDS, version=TEXTS)),
    instructions=st.one_of(st.none(), TEXTS),
    tools=st.lists(
        st.builds(Tool, name=WORDS, description=TEXTS, input_schema=INPUTS, output_schema=OUTPUTS),
        min_size=1,
        max_size=3,
    ),
    prompts=st.lists(
        st.builds(
            Prompt,
            name=WORDS,
            description=TEXTS,
            arguments=st.lists(
                st.builds(PromptArgument, name=WORDS, description=TEXTS, required=st.booleans()),
                max_size=3,
                unique_by=lambda one: one.name,
            ),
        ),
        max_size=2,
    ),
    templates=st.lists(
        st.builds(
            ResourceTemplate,
            name=WORDS,
            description=TEXTS,
            uri_template=st.one_of(
                TEXTS, st.sampled_from(("a://{self}/{list}{?q,uri*}", "a://{given}/é", "x://{a}/{a}{#b}", "a://{"))
            ),
        ),
        max_size=2,
    ),
)
