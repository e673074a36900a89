"""Rules about arguments decide on what the tool gets, and what is in doubt counts against the call."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from gemel import ArgumentChange, Client, ElicitFormParams, Server, ToolChange, ToolChanges
from gemel.policies import Policy, PolicyRequest
from gemel.policies.conditions import argument_condition, folded
from gemel.receipts import Receipts


def allows(condition: Any, effect: str = "allow", **arguments: Any) -> Policy:
    """A policy with one rule about `x`; where it does not fit, the other effect holds."""
    other = "deny" if effect == "allow" else "allow"
    return Policy({"default": other, "rule": [{"arguments": {"x": condition}, "effect": effect}]})


async def ran(policy: Policy, tool: Any, arguments: dict[str, Any], **options: Any) -> list[Any]:
    """What the tool got, behind the policy."""
    server, got = Server("one"), list[Any]()
    tool(server, got)
    server.add_middleware(policy)
    async with Client(server) as client:
        await client.call_tool("tool", arguments, raise_on_error=False)
    return got


def text(server: Server, got: list[Any]) -> None:
    @server.tool
    def tool(x: str = "outside") -> None:
        got.append(x)


def count(server: Server, got: list[Any]) -> None:
    @server.tool(coerce=True)
    def tool(x: int | bool = 3) -> None:
        got.append(x)


def texts(server: Server, got: list[Any]) -> None:
    @server.tool
    def tool(x: list[str]) -> None:
        got.append(x)


#: Texts that a program may take for one that the glob `/srv/*` is about, or not.
SLIPPING = [
    "/srv/../etc/passwd",
    "/srv/./../etc/passwd",
    "/srv/a/../../etc/passwd",
    "/srv\\..\\..\\etc",
    "/srv/%2e%2e/etc/passwd",
    "/srv/%252e%252e/etc/passwd",
    "/srv/.\u200b./etc/passwd",
    "/srv/\uff0e\uff0e/etc/passwd",
    "/srv/\u2025/etc",
    "/srv/\uff052e\uff052e/etc",
    "/srv/%\u200b2e./etc",
    "/srv/..\x00",
    "/srv/..%00/srv/x",
    "/srv/\u2025%00x",
    "/srv/..%2f\uff0fsrv\uff0f..",
]


@pytest.mark.parametrize("value", SLIPPING)
async def test_a_path_that_leads_elsewhere_is_not_allowed(value: str) -> None:
    assert await ran(allows("/srv/*"), text, {"x": value}) == []


@pytest.mark.parametrize(
    "value",
    [
        "/etc/passwd",
        "/srv/../etc/passwd",
        "//etc/passwd",
        "/ETC/passwd",
        "/\uff45tc/passwd",
        "/e\u00adtc/passwd",
        "/e\u200btc/passwd",
        "/e\ufe0ftc/passwd",
        "\u2066/etc/passwd\u2069",
        "/et\U000e0063c/passwd",
        "/%65tc/passwd",
        "/./etc/passwd",
        " /etc/passwd",
    ],
)
async def test_another_way_to_write_what_is_denied_is_denied(value: str) -> None:
    assert await ran(allows("/etc/*", "deny"), text, {"x": value}) == []


@pytest.mark.parametrize("value", ["anna@example.com", "Anna@example.com", "a.b+c@example.com"])
async def test_ordinary_texts_that_fit_are_allowed(value: str) -> None:
    assert await ran(allows("*@example.com"), text, {"x": value}) == [value]


@pytest.mark.parametrize(
    "value", ["anna@example.com.evil.org", "anna@example.org", "anna@ex\u0430mple.com", "anna@EXAMPLE.com", "", "@"]
)
async def test_texts_that_only_look_like_it_are_not(value: str) -> None:
    assert await ran(allows("*@example.com"), text, {"x": value}) == []


@pytest.mark.parametrize(
    ("pattern", "value", "others"),
    [
        ("./data/*", "./data/x", ["./data/../x", "data/x", "./database"]),
        ("C:\\Users\\ann\\*", "C:\\Users\\ann\\x", ["C:\\Users\\ann\\..\\bob", "C:/Users/ann/x", "C:\\Users\\bob"]),
        ("\\\\host\\share\\*", "\\\\host\\share\\x", ["\\\\host\\share\\..\\x"]),
        ("https://a.org/my%20files/*", "https://a.org/my%20files/x", ["https://a.org/my%20files/../x"]),
        ("\u2764\ufe0f", "\u2764\ufe0f", ["\u2764", "\u2764\ufe0f\u2764\ufe0f"]),
        ("\u0645\u06cc\u200c*", "\u0645\u06cc\u200c\u062e", ["\u0645\u06cc\u062e"]),
        ("a%2Ab", "a%2Ab", ["a*b", "axb"]),
        ("*\\*", "a\\b", ["a/b"]),
    ],
)
async def test_a_pattern_may_be_written_as_the_texts_that_it_is_about(
    pattern: str, value: str, others: list[str]
) -> None:
    assert await ran(allows(pattern), text, {"x": value}) == [value]
    for other in others:
        assert await ran(allows(pattern), text, {"x": other}) == []


@pytest.mark.parametrize(
    ("pattern", "denied", "allowed"),
    [
        ("./secret/*", ["./secret/x", "secret/x", "SECRET/x", "a/../secret/x"], ["secrets", "public/x"]),
        ("C:\\secret\\*", ["c:/secret/x", "C:\\a\\..\\secret\\x"], ["C:\\secrets"]),
        ("*/../*", ["/a/../b", "a\\..\\b/c"], ["/a/b", "a..b/c"]),
        ("*\\*", ["a\\b"], ["a/b", "ab"]),
        ("*//*", ["a//b"], ["a/b"]),
        ("*\n*", ["a\nb"], ["ab"]),
        ("*%2e*", ["a%2eb"], ["a.b"]),
    ],
)
async def test_what_is_written_in_a_pattern_that_denies_is_denied_however_it_is_written(
    pattern: str, denied: list[str], allowed: list[str]
) -> None:
    for value in denied:
        assert await ran(allows(pattern, "deny"), text, {"x": value}) == []
    for value in allowed:
        assert await ran(allows(pattern, "deny"), text, {"x": value}) == [value]


async def test_a_pattern_of_json_schema_is_stricter_than_a_glob() -> None:
    elsewhere, here = "https://evil.org/.example.com/", "https://a.example.com/x"
    assert await ran(allows("https://*.example.com/*"), text, {"x": elsewhere}) == [elsewhere]
    strict = {"schema": {"pattern": r"^https://[a-z0-9-]+\.example\.com/"}}
    assert await ran(allows(strict), text, {"x": elsewhere}) == []
    assert await ran(allows(strict), text, {"x": here}) == [here]


async def test_a_text_that_takes_long_to_read_is_in_doubt() -> None:
    assert await ran(allows("*"), text, {"x": "a" * 100_001}) == []
    assert await ran(allows("b*", "deny"), text, {"x": "a" * 100_001}) == []
    assert await ran(allows("*"), text, {"x": "a" * 100_000})


@pytest.mark.parametrize(
    ("condition", "value", "fits"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, None),
        (1, "1", None),
        (1, 2, False),
        (True, 1, None),
        (True, True, True),
        ("1", 1, None),
        ("1", "1", True),
        ({"max": 10}, 10, True),
        ({"max": 10}, 10.5, False),
        ({"max": 10}, "5", None),
        ({"max": 10}, True, None),
        ({"min": 1, "max": 10}, [1, 2], True),
        ({"min": 1, "max": 10}, [1, 20], None),
        ({"min": 1, "max": 10}, [], None),
        (["a", "b*", 3], "bb", True),
        (["a", "b*", 3], 3, True),
        (["a", "b*", 3], 4, False),
        (["a", "b*", 3], None, None),
        ({"schema": {"enum": ["a", None]}}, None, True),
        ({"schema": {"enum": ["a", None]}}, "b", False),
    ],
)
def test_types_are_not_mixed(condition: Any, value: Any, fits: bool | None) -> None:
    assert argument_condition(condition)(value) is fits


@pytest.mark.parametrize(("value", "got"), [(5, [5]), ("5", [5]), (11, []), ("11", []), (True, []), ("true", [])])
async def test_a_range_sees_what_coercion_makes(value: Any, got: list[Any]) -> None:
    assert await ran(allows({"max": 10}), count, {"x": value}) == got


class Order(pydantic.BaseModel):
    """What is bought."""

    price: Decimal


@dataclass
class Transfer:
    """Money that goes somewhere."""

    amount: Decimal


def payments(server: Server, got: list[Any]) -> None:
    @server.tool
    def tool(
        x: Decimal,
        order: Order | None = None,
        transfers: list[Transfer] | None = None,
        limited: Annotated[Decimal, pydantic.Field(ge=0)] = Decimal(1),
    ) -> None:
        got.append(x)


@pytest.mark.parametrize("value", [5, 5.5, "5.50", "2E+1", "-0", Decimal("0.1"), "+7.00"])
async def test_a_decimal_is_a_number(value: Any) -> None:
    assert await ran(allows({"max": 20}), payments, {"x": value}) == [Decimal(str(value))]


@pytest.mark.parametrize("value", [21, "20.01", "20.00000000000000000001", "NaN", "1E+400", "Infinity"])
async def test_a_decimal_beyond_or_that_no_number_is_equal_to_does_not_fit(value: Any) -> None:
    assert await ran(allows({"max": 20}), payments, {"x": value}) == []


async def test_decimals_in_values_of_each_kind_are_numbers() -> None:
    inner = {"/order/price": {"max": 20}, "/transfers/amount": {"max": 5}, "limited": 2.5}
    policy = {"rule": [{"arguments": inner, "effect": "allow"}]}
    fitting = {"x": 1, "order": {"price": "19.99"}, "transfers": [{"amount": "5"}, {"amount": 0.5}], "limited": "2.50"}
    assert await ran(Policy(policy), payments, fitting) == [1]
    for wrong in ({"order": {"price": "20.01"}}, {"transfers": [{"amount": "5"}, {"amount": 6}]}, {"limited": 2}):
        assert await ran(Policy(policy), payments, {**fitting, **wrong}) == []


async def test_a_decimal_of_a_server_elsewhere_is_a_number() -> None:
    server, got = Server("shop"), list[Any]()
    payments(server, got)
    proxy = Server.from_client(Client(server), middleware=[allows({"max": 20})])
    async with Client(proxy) as client:
        for value in (19, "19.5", "20.5", "1_9", "\u0661"):
            await client.call_tool("tool", {"x": value}, raise_on_error=False)
    assert got == [19, Decimal("19.5")]


async def test_a_default_that_the_caller_leaves_out_is_judged() -> None:
    assert await ran(allows("outside", "deny"), text, {}) == []
    assert await ran(allows("outside"), text, {}) == ["outside"]
    assert await ran(allows({"max": 2}), count, {}) == []


async def test_of_a_list_every_item_has_to_fit() -> None:
    assert await ran(allows("*@a.org"), texts, {"x": ["b@a.org", "c@a.org"]}) == [["b@a.org", "c@a.org"]]
    assert await ran(allows("*@a.org"), texts, {"x": ["b@a.org", "c@b.org"]}) == []
    assert await ran(allows("*@a.org"), texts, {"x": []}) == []
    assert await ran(allows("*@b.org", "deny"), texts, {"x": ["b@a.org", "c@b.org"]}) == []


@dataclass
class Place:
    """Where something goes."""

    path: str
    mode: str = "append"


class Mail(pydantic.BaseModel):
    """A mail with names in JSON."""

    model_config = pydantic.ConfigDict(populate_by_name=True)
    recipient: Annotated[str, pydantic.Field(alias="to"), pydantic.AfterValidator(str.strip)]


async def test_members_of_arguments_are_judged_by_json_pointers() -> None:
    def tool(server: Server, got: list[Any]) -> None:
        @server.tool
        def tool(places: list[Place]) -> None:
            got.append(places)

    def pointing(name: str, value: str) -> Policy:
        return Policy({"rule": [{"arguments": {name: value}, "effect": "allow"}]})

    inside = {"places": [{"path": "/tmp/a"}, {"path": "/tmp/b"}]}
    outside = {"places": [{"path": "/tmp/a"}, {"path": "/etc/b"}]}
    assert await ran(pointing("/places/path", "/tmp/*"), tool, inside)
    assert not await ran(pointing("/places/path", "/tmp/*"), tool, outside)
    assert await ran(pointing("/places/mode", "append"), tool, outside)  # the default
    assert not await ran(pointing("/places/owner", "*"), tool, inside)


async def test_a_name_in_json_is_the_one_of_the_schema_whatever_the_caller_writes() -> None:
    def tool(server: Server, got: list[Any]) -> None:
        @server.tool
        def tool(mail: Mail) -> None:
            got.append(mail.recipient)

    policy = Policy({"rule": [{"arguments": {"/mail/to": "*@a.org"}, "effect": "allow"}]})
    assert await ran(policy, tool, {"mail": {"to": " b@a.org "}}) == ["b@a.org"]
    assert await ran(policy, tool, {"mail": {"to": "b@evil.org"}}) == []
    assert await ran(policy, tool, {"mail": {"recipient": "b@evil.org"}}) == []
    assert await ran(policy, tool, {"mail": {"to": "b@a.org", "recipient": "b@evil.org"}}) in ([], ["b@a.org"])


@pytest.mark.foreign_words("a member that is there twice")
async def test_of_repeated_arguments_the_one_that_is_judged_goes_on() -> None:
    raw = b'{"x": "inside", "x": "outside"}'
    got: list[Any] = []
    inner = Server("inner")

    @inner.add_middleware
    async def note(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            got.append(bytes(ctx.params).count(b'"x"'))
        return await call_next(ctx)

    text(inner, got)
    outer = Server("outer", middleware=[allows("outside")])
    outer.mount(inner)
    async with Client(outer) as client:
        await client.request("tools/call", {"name": "tool", "arguments": msgspec.Raw(raw)})
    assert got == [1, "outside"]


# ---------------------------------------------------------------- tools of other servers


def remote(server: Server, policy: Policy) -> Server:
    return Server.from_client(Client(server), name="box", middleware=[policy])


async def called(server: Server, arguments: dict[str, Any], name: str = "tool") -> bool:
    """Whether the tool ran."""
    async with Client(server) as client:
        result = await client.call_tool(name, arguments, raise_on_error=False)
        return not result.is_error


def lenient(got: list[Any], schema: dict[str, Any]) -> Server:
    """A server that takes any arguments, whatever its schema says of them."""
    server = Server("lenient")

    @server.tool(input_schema={"type": "object", **schema})
    def tool(given: dict[str, Any]) -> str:
        got.append(given)
        return "ran"

    return server


async def test_arguments_that_a_server_elsewhere_does_not_list_meet_no_rule_that_allows() -> None:
    got: list[Any] = []
    server = remote(lenient(got, {"properties": {"x": {}}}), allows("inside"))
    assert await called(server, {"x": "inside"})
    assert not await called(server, {"x": "inside", "X": "outside"})
    assert not await called(server, {"x": "inside", "bcc": "outside"})
    open_server = remote(lenient(got, {"properties": {"x": {}}, "additionalProperties": True}), allows("inside"))
    assert await called(open_server, {"x": "inside", "note": "outside"})


async def test_a_rule_that_denies_is_met_by_them() -> None:
    got: list[Any] = []
    server = remote(lenient(got, {"properties": {"x": {}}}), allows("outside", "deny"))
    assert not await called(server, {"x": "inside", "X": "outside"})
    assert not await called(server, {})  # who knows what is used in its place
    assert not await called(server, {"x": 3})


async def test_defaults_of_a_server_elsewhere_are_believed_only_if_it_is_trusted() -> None:
    got: list[Any] = []
    schema = {"properties": {"x": {"default": "inside"}}}
    rules = {"rule": [{"arguments": {"x": "inside"}, "effect": "allow"}]}
    assert not await called(remote(lenient(got, schema), Policy(rules)), {})
    assert await called(remote(lenient(got, schema), Policy(rules, trust_hints=["box"])), {})


async def test_behind_changed_names_the_rules_are_about_the_names_in_front() -> None:
    got: list[Any] = []
    inner = Server("inner")

    @inner.tool
    def tool(x: str, dry_run: bool = True) -> str:
        got.append((x, dry_run))
        return "ran"

    arguments = {"x": ArgumentChange(name="path"), "dry_run": ArgumentChange(value=False)}
    changes = {"tool": ToolChange(name="store", arguments=arguments)}
    rules = {"rule": [{"tool": "store", "arguments": {"path": "/tmp/*"}, "effect": "allow"}]}
    outer = Server("outer", middleware=[Policy(rules)])
    outer.mount(inner, tools=changes)
    assert await called(outer, {"path": "/tmp/a"}, "store")
    assert not await called(outer, {"path": "/etc/a"}, "store")
    assert not await called(outer, {"x": "/tmp/a"}, "store")
    dry = Server("outer", middleware=[Policy({"rule": [{"arguments": {"dry_run": True}, "effect": "allow"}]})])
    dry.mount(inner, tools=changes)
    assert not await called(dry, {"path": "/tmp/a"}, "store")
    rules = {"rule": [{"tool": "tool", "arguments": {"dry_run": False}, "effect": "allow"}]}
    inside = Server("outer", middleware=[ToolChanges(changes), Policy(rules)])
    inside.mount(inner)
    assert await called(inside, {"path": "/etc/a"}, "store")
    assert got == [("/tmp/a", False), ("/etc/a", False)]


async def test_wrong_arguments_are_explained_and_nobody_is_asked() -> None:
    server, got = Server("one"), list[Any]()
    count(server, got)
    server.add_middleware(Policy({"default": "ask"}))
    asked: list[Any] = []
    async with Client(server, on_elicit=lambda form: asked.append(form)) as client:
        result = await client.call_tool("tool", {"x": "many"}, raise_on_error=False)
    assert "x: expected" in result.text
    assert not asked
    assert not got


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("abc", "abc"),
        ("ABC", "abc"),
        ("a/../../b", "../b"),
        ("/../../b", "/b"),
        ("https://h/a/../b", "https://h/b"),
        ("a//b", "a/b"),
        ("ﬁle", "file"),
        ("STRASSE", "strasse"),
        ("stra\u00dfe", "strasse"),
    ],
)
def test_a_folded_text_is_what_a_lenient_program_reads(text: str, same: str) -> None:
    assert folded(text) == same


async def test_a_function_gets_what_the_tool_gets() -> None:
    seen: list[PolicyRequest] = []

    def decide(request: PolicyRequest) -> Any:
        seen.append(request)
        return "allow"

    assert await ran(Policy(decide), count, {"x": "5"}) == [5]
    (call,) = [request for request in seen if not request.is_listing]
    assert call.arguments == {"x": 5}
    assert call.server == "one"


# ---------------------------------------------------------------- tools without the argument


def denies(name: str) -> Policy:
    """A policy that denies by an argument and allows everything else."""
    return Policy({"default": "allow", "rule": [{"arguments": {name: "/etc/*"}, "effect": "deny"}]})


@pytest.mark.parametrize("name", ["path", "/path/of/it"])
async def test_a_rule_does_not_concern_a_tool_that_can_not_get_its_argument(name: str) -> None:
    def tool(server: Server, got: list[Any]) -> None:
        @server.tool
        def tool(title: str = "x") -> None:
            got.append(title)

    assert await ran(denies(name), tool, {}) == ["x"]
    got: list[Any] = []
    closed: list[dict[str, Any]] = [
        {"properties": {"x": {}}},
        {"properties": {}},
        {},
        {"properties": {}, "additionalProperties": False},
    ]
    for schema in closed:
        assert await called(remote(lenient(got, schema), denies(name)), {}), schema


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {}}, "additionalProperties": True},
        {"properties": {"x": {}}, "additionalProperties": {"type": "string"}},
        {"properties": {"x": {}}, "patternProperties": {"^p": {}}},
        {"properties": {"x": {}}, "unevaluatedProperties": True},
        {"properties": {"x": {}}, "allOf": [{"properties": {"path": {}}}]},
        {"$ref": "#/$defs/all", "$defs": {"all": {"properties": {"path": {}}}}},
        {"properties": {"Path": {}}},
        {"properties": {"path": {}}},
    ],
)
async def test_where_the_argument_could_reach_the_tool_its_absence_is_in_doubt(schema: dict[str, Any]) -> None:
    got: list[Any] = []
    assert not await called(remote(lenient(got, schema), denies("path")), {})
    assert got == []


async def test_an_argument_that_is_not_listed_is_in_doubt_for_a_rule_about_another_one() -> None:
    got: list[Any] = []
    server = lenient(got, {"properties": {"x": {}}})
    assert await called(remote(server, denies("path")), {"x": 1})
    assert not await called(remote(server, denies("path")), {"x": 1, "path": "/tmp/a"})
    assert not await called(remote(server, denies("path")), {"x": 1, "file": "/etc/a"})
    own = lenient(got, {"properties": {"x": {}}})
    own.add_middleware(denies("path"))
    assert await called(own, {"x": 1})
    assert not await called(own, {"x": 1, "file": "/etc/a"})


@pytest.mark.parametrize("members", [{"PATH": "/etc/a"}, {"p\u200bath": "/etc/a"}, {"x" * 100_001: "/etc/a"}])
async def test_two_members_of_nearly_one_name_are_in_doubt(members: dict[str, str]) -> None:
    server, got = Server("shell"), list[Any]()

    @server.tool
    def tool(options: dict[str, str]) -> None:
        got.append(options)

    rule = {"arguments": {"/options/path": "/srv/*"}, "effect": "allow"}
    server.add_middleware(Policy({"rule": [rule]}))
    async with Client(server) as client:
        await client.call_tool("tool", {"options": {"path": "/srv/a", "mode": "r"}})
        await client.call_tool("tool", {"options": {"path": "/srv/a", **members}}, raise_on_error=False)
    assert got == [{"path": "/srv/a", "mode": "r"}]


async def test_an_argument_that_is_set_on_the_way_is_in_doubt() -> None:
    inner = Server("inner")

    @inner.tool
    def tool(x: str, path: str = "/etc/passwd") -> str:
        return path

    outer = Server("outer", middleware=[denies("path")])
    outer.mount(inner, tools={"tool": ToolChange(arguments={"path": ArgumentChange(value="/etc/shadow")})})
    assert not await called(outer, {"x": "a"})


async def test_the_error_says_whether_other_arguments_would_help() -> None:
    got: list[Any] = []
    server = lenient(got, {"properties": {"path": {}}})

    async def text(policy: Policy, **arguments: Any) -> str:
        async with Client(server, middleware=[policy]) as client:
            return (await client.call_tool("tool", arguments, raise_on_error=False)).text

    rule = {"name": "no secrets", "arguments": {"path": "/etc/*"}, "effect": "deny"}
    policy = Policy({"default": "allow", "rule": [rule]})
    assert await text(policy) == "The policy allows tool only with the argument path (no secrets)."
    denied = "The policy does not allow tool with these arguments (no secrets). Don't try it again."
    assert await text(policy, path="/etc/a") == denied
    assert await text(policy, path="/tmp/a", other=1) == denied
    for effect in ("allow", "ask"):
        ours = Policy({"rule": [{"arguments": {"path": "/srv/*"}, "effect": effect}]})
        assert await text(ours) == "The policy allows tool only with the argument path."
        assert (
            await text(ours, path="/tmp/a")
            == "The policy does not allow tool with these arguments. Don't try it again."
        )
        assert await text(ours, path=3) == "The policy does not allow tool with these arguments. Don't try it again."
    never = Policy({"default": "allow", "rule": [{"name": "never", "effect": "deny"}]})
    assert await text(never, path="/tmp/a") == "The policy does not allow tool (never). Don't try it again."


# ---------------------------------------------------------------- secrets


NO_PIN = pydantic.SecretStr("0000")


class Login(pydantic.BaseModel):
    """A name and a secret."""

    user: str
    password: pydantic.SecretStr


async def test_a_secret_is_judged_by_its_value_and_shown_as_stars(tmp_path: Path) -> None:
    def tool(server: Server, got: list[Any]) -> None:
        @server.tool
        def tool(login: Login, pin: pydantic.SecretStr = NO_PIN) -> None:
            got.append((login.password.get_secret_value(), pin.get_secret_value()))

    def denies(**arguments: Any) -> Policy:
        rule = {"arguments": {name.replace("__", "/"): value for name, value in arguments.items()}, "effect": "deny"}
        return Policy({"default": "allow", "rule": [rule]})

    ann = {"login": {"user": "ann", "password": "secret-of-ann"}, "pin": "pin-of-ann"}
    assert await ran(denies(pin="pin-of-*"), tool, ann) == []
    assert await ran(denies(pin="99*"), tool, ann) == [("secret-of-ann", "pin-of-ann")]
    assert await ran(denies(pin="0000"), tool, {"login": ann["login"]}) == []
    assert await ran(denies(__login__password="secret-*"), tool, ann) == []
    assert await ran(denies(__login__password="other"), tool, ann) == [("secret-of-ann", "pin-of-ann")]

    server, got, shown = Server("one"), list[Any](), list[str]()
    tool(server, got)
    server.add_middleware(Receipts(tmp_path / "receipts.jsonl"))
    server.add_middleware(Policy({"default": "ask"}))

    def person(form: ElicitFormParams) -> dict[str, bool]:
        shown.append(form.message)
        return {"allow": len(shown) > 1}

    async with Client(server, on_elicit=person) as client:
        shown.append((await client.call_tool("tool", ann, raise_on_error=False)).text)
        await client.call_tool("tool", ann)
    assert got == [("secret-of-ann", "pin-of-ann")]
    assert '"user": "ann"' in shown[0]
    for text in (*shown, (tmp_path / "receipts.jsonl").read_text()):
        assert "secret-of-ann" not in text
        assert "pin-of-ann" not in text


async def test_what_a_server_elsewhere_marks_as_secret_is_not_shown() -> None:
    got: list[Any] = []
    secret = {"type": "string", "format": "password"}
    tree = {"anyOf": [{"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/tree"}], "properties": {"key": secret}}
    schema = {
        "properties": {"key": secret, "tree": {"$ref": "#/$defs/tree"}, "keys": {"items": secret}},
        "$defs": {"tree": tree},
    }
    shown: list[Any] = []

    def person(request: PolicyRequest) -> bool:
        shown.append(request.shown)
        return request.arguments == arguments

    server = remote(lenient(got, schema), Policy({"default": "ask"}, ask=person))
    arguments = {"key": "a", "keys": ["b"], "tree": {"key": "c", "name": "d"}, "other": "e"}
    assert await called(server, arguments)
    assert "a" not in str(shown[0]["key"])
    assert "b" not in str(shown[0]["keys"])
    assert "'c'" not in str(shown[0]["tree"])
    assert shown[0]["other"] == "e"
