"""Words of a user find the tool that does it, among those of seven servers, by names of tools and parameters alone."""

from __future__ import annotations

import json
import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemel.code.search import WordIndex
from gemel.schema.tools import Tool
from tests.source import ROOT

#: What a user wants, and the tools that do it.
QUERIES = {
    "take a screenshot of the page": {"chrome-devtools take_screenshot", "playwright browser_take_screenshot"},
    "click on a button": {"chrome-devtools click", "playwright browser_click"},
    "fill in the form": {"chrome-devtools fill_form", "playwright browser_fill_form"},
    "upload a file in the browser": {"chrome-devtools upload_file", "playwright browser_file_upload"},
    "which network requests did the page send": {
        "chrome-devtools list_network_requests",
        "playwright browser_network_requests",
    },
    "read the console messages": {"chrome-devtools list_console_messages", "playwright browser_console_messages"},
    "open a new browser tab": {"playwright browser_tabs", "chrome-devtools new_page"},
    "go back to the previous page": {"playwright browser_navigate_back"},
    "accept the dialog": {"chrome-devtools handle_dialog", "playwright browser_handle_dialog"},
    "record a performance trace": {"chrome-devtools performance_start_trace"},
    "run a lighthouse audit": {"chrome-devtools lighthouse_audit"},
    "press the Enter key": {"chrome-devtools press_key", "playwright browser_press_key"},
    "wait until text appears": {"chrome-devtools wait_for", "playwright browser_wait_for"},
    "open issues of a repository": {"github list_issues", "github search_issues"},
    "create a pull request": {"github create_pull_request"},
    "merge PR 12 by squash merge method": {"github merge_pull_request"},
    "comment on an issue": {"github add_issue_comment"},
    "who am I on GitHub": {"github get_me"},
    "create a new branch": {"github create_branch"},
    "commits of a branch": {"github list_commits"},
    "latest release": {"github get_latest_release"},
    "push several files": {"github push_files"},
    "fork this repository": {"github fork_repository"},
    "search code for a function": {"github search_code"},
    "list the contents of a directory": {"filesystem list_directory", "filesystem list_directory_with_sizes"},
    "read several files": {"filesystem read_multiple_files"},
    "rename or move a file": {"filesystem move_file"},
    "edit lines of a file": {"filesystem edit_file"},
    "how large is this file, file info": {"filesystem get_file_info"},
    "search notion pages": {"notion API-post-search"},
    "comments of a notion block": {"notion API-retrieve-a-comment"},
    "query a notion data source": {"notion API-query-data-source"},
    "move a notion page": {"notion API-move-page"},
    "page as markdown": {"notion API-retrieve-page-markdown"},
    "remember facts about entities": {"memory create_entities", "memory add_observations"},
    "delete relations from the graph": {"memory delete_relations"},
}


@cache
def recorded() -> list[tuple[str, Tool]]:
    """The tools of each recorded server, without their descriptions."""
    lists = json.loads((ROOT / "benchmarks" / "tool_lists.json").read_text())
    return [
        (server, Tool(name=tool["name"], input_schema=tool["inputSchema"]))
        for server, tools in lists.items()
        for tool in tools
    ]


def found(query: str, most: int) -> list[str]:
    return [f"{recorded()[place][0]} {recorded()[place][1].name}" for place in index().find(query, most)]


@cache
def index() -> WordIndex:
    return WordIndex(recorded())


def test_words_of_a_user_find_the_tool() -> None:
    in_5 = [query for query, tools in QUERIES.items() if tools & set(found(query, 5))]
    in_10 = [query for query, tools in QUERIES.items() if tools & set(found(query, 10))]
    assert len(QUERIES) == 36
    assert len(in_5) >= 33, sorted(QUERIES.keys() - in_5)
    assert len(in_10) >= 34, sorted(QUERIES.keys() - in_10)


def test_the_name_of_a_tool_finds_it_first() -> None:
    names = [tool.name for _, tool in recorded()]
    missed = [name for name in names if found(name, 1)[0].split(" ")[1] != name]
    assert missed == []


def test_the_name_of_a_server_and_of_a_tool_finds_it_first() -> None:
    wanted = [f"{server} {tool.name}" for server, tool in recorded()]
    assert [name for name in wanted if found(name, 1) != [name]] == []


@given(st.text(), st.integers(0, 20))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_query(query: str, most: int) -> None:
    places = index().find(query, most)
    assert len(set(places)) == len(places) <= most
    assert all(0 <= place < len(recorded()) for place in places)


@pytest.mark.parametrize("query", ["a" * 10**7, "a " * 10**6, "aA" * 10**6, "é" * 10**6, "issue " * 10**6, "_" * 10**6])
def test_long_queries_take_no_long_time(query: str) -> None:
    begin = time.process_time()
    index().find(query, 10)
    assert time.process_time() - begin < 1.0


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": None},
        {"type": "object", "properties": {"a": True, "b": None, "c": {"description": 5}, "": {}}},
        {"type": "object", "properties": ["a"]},
    ],
)
def test_any_schema_is_indexed(schema: dict[str, object]) -> None:
    assert WordIndex([("server", Tool(name="send_mail", input_schema=schema))]).find("mails sent", 1) == [0]


def test_names_with_capitals_within_are_words() -> None:
    tools = [("github", Tool(name="star", input_schema={})), ("x", Tool(name="run_JavaScript", input_schema={}))]
    assert WordIndex(tools).find("GitHub", 5) == [0]
    assert WordIndex(tools).find("javascript", 5) == WordIndex(tools).find("a script", 5) == [1]


def test_nothing_is_found_where_nothing_is() -> None:
    assert WordIndex([]).find("anything", 10) == []
    assert WordIndex([("", Tool(name="☃", input_schema={"type": "object"}))]).find("☃", 10) == []
