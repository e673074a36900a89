"""The arguments of a call, to be renamed, moved and removed by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import libcst as cst
import libcst.matchers as m

_TIGHT = cst.AssignEqual(whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace(""))


class CallArguments:
    """The arguments of one call. Positional ones have the names of the parameters that they stand for.

    Args:
        call: The call.
        parameters: The names of the parameters that can be positional, in order.
    """

    def __init__(self, call: cst.Call, parameters: Sequence[str] = ()) -> None:
        self._call = call
        self._args: list[tuple[str | None, cst.Arg]] = []
        names = iter(parameters)
        self.starred = any(arg.star for arg in call.args)
        for arg in call.args:
            name = arg.keyword.value if arg.keyword is not None else None if arg.star else next(names, None)
            self._args.append((name, arg))

    def __contains__(self, name: str) -> bool:
        return any(other == name for other, _ in self._args)

    def names(self) -> list[str]:
        """Return the names of all arguments that have one."""
        return [name for name, _ in self._args if name is not None]

    def get(self, name: str) -> cst.BaseExpression | None:
        """Return the value of an argument."""
        return next((arg.value for other, arg in self._args if other == name), None)

    def pop(self, name: str) -> cst.BaseExpression | None:
        """Remove an argument and return its value."""
        value = self.get(name)
        self._args = [(other, arg) for other, arg in self._args if other != name]
        return value

    def rename(self, old: str, new: str) -> None:
        """Give an argument another keyword; a positional one becomes a keyword argument."""
        self._args = [(new, _named(arg, new)) if name == old else (name, arg) for name, arg in self._args]

    def name_all_but(self, count: int) -> None:
        """Make positional arguments after the first ones keyword arguments."""
        for index, (name, arg) in enumerate(self._args):
            if index >= count and arg.keyword is None and name is not None:
                self._args[index] = (name, _named(arg, name))

    def set(self, name: str, value: cst.BaseExpression | str) -> None:
        """Add a keyword argument, or replace its value."""
        expression = cst.parse_expression(value) if isinstance(value, str) else value
        self.pop(name)
        self._args.append((name, _keyword(name, expression)))

    def replace(self, name: str, value: cst.BaseExpression) -> None:
        """Replace the value of an argument where it stands."""
        self._args = [(other, arg.with_changes(value=value) if other == name else arg) for other, arg in self._args]

    def spread(self, name: str) -> None:
        """Put the keyword arguments of a call, which is the value of an argument, in place of that argument."""
        at = next((index for index, (other, _) in enumerate(self._args) if other == name), None)
        if at is None:
            return
        arg = self._args[at][1]
        inner = CallArguments(cst.ensure_type(arg.value, cst.Call))
        parts = [(key, _keyword(key, value)) for key in inner.names() if (value := inner.get(key)) is not None]
        if len(parts) == 1:
            key, part = parts[0]
            parts = [(key, _named(arg, key).with_changes(value=part.value))]
        self._args[at : at + 1] = parts

    def make_positional(self, name: str) -> None:
        """Put an argument in front, without its keyword."""
        value = self.pop(name)
        if value is not None:
            self.put_first(value)

    def put_first(self, value: cst.BaseExpression | str, star: Literal["", "*"] = "") -> None:
        """Add a positional argument in front; with a star, all that an iterable holds."""
        expression = cst.parse_expression(value) if isinstance(value, str) else value
        self._args.insert(0, (None, cst.Arg(expression, star=star)))

    def lines(self) -> cst.Call:
        """Return the call with one argument on each line."""
        args = [arg.with_changes(comma=_LINE) for _, arg in self._args]
        args[-1] = args[-1].with_changes(comma=cst.Comma(whitespace_after=_line("")))
        return self._call.with_changes(args=args, whitespace_before_args=_line("    "))

    def call(self) -> cst.Call:
        """Return the call with these arguments."""
        args = [arg for _, arg in self._args]
        if args and [id(arg) for arg in args] != [id(arg) for arg in self._call.args]:
            end = self._call.args[-1] if self._call.args else cst.Arg(cst.Name("x"))
            args = [self._between(arg, end) for arg in args]
            # The end of the call stays as it was: on the same line, or on one of its own.
            args[-1] = args[-1].with_changes(comma=end.comma, whitespace_after_arg=end.whitespace_after_arg)
        return self._call.with_changes(args=args)

    def _between(self, arg: cst.Arg, end: cst.Arg) -> cst.Arg:
        """An argument that is followed by others: on the line of the next one, or on one of its own as before."""
        before = self._call.whitespace_before_args
        if not isinstance(arg.comma, cst.Comma) or not _breaks(arg.comma):
            return arg.with_changes(comma=_COMMA, whitespace_after_arg=cst.SimpleWhitespace(""))
        if arg.comma is end.comma and isinstance(before, cst.ParenthesizedWhitespace):
            return arg.with_changes(comma=arg.comma.with_changes(whitespace_after=before))
        return arg


def in_lines(call: cst.Call, original: cst.Call) -> cst.Call:
    """Return a call with an argument on each line, if the one that it replaces was so; the comments of that stand at its end.

    Args:
        call: The call that was made anew. A first argument that is a call itself is laid out in the same way.
        original: The call in the source.
    """
    if "\n" not in code_of(original) or not call.args:
        return call
    comments = [comment for comment in m.findall(original, m.Comment()) if isinstance(comment, cst.Comment)]
    last = original.args[-1] if original.args else None
    end = last.comma.whitespace_after if last is not None and isinstance(last.comma, cst.Comma) else None
    if last is not None and not isinstance(end, cst.ParenthesizedWhitespace):
        end = last.whitespace_after_arg
    return _laid_out(call, comments, end.last_line.value if isinstance(end, cst.ParenthesizedWhitespace) else "")


def _laid_out(call: cst.Call, comments: Sequence[cst.Comment], indent: str) -> cst.Call:
    inner = indent + "    "
    args = [arg.with_changes(comma=cst.Comma(whitespace_after=_line(inner))) for arg in call.args]
    if isinstance(args[0].value, cst.Call) and args[0].keyword is None:
        args[0] = args[0].with_changes(value=_laid_out(args[0].value, (), inner))
    lines = [
        cst.EmptyLine(indent=True, whitespace=cst.SimpleWhitespace(inner), comment=comment) for comment in comments
    ]
    end = cst.ParenthesizedWhitespace(empty_lines=lines, indent=True, last_line=cst.SimpleWhitespace(indent))
    args[-1] = args[-1].with_changes(comma=cst.Comma(whitespace_after=end))
    return call.with_changes(args=args, whitespace_before_args=_line(inner))


def _line(indent: str) -> cst.ParenthesizedWhitespace:
    """The end of a line within parentheses, and the indentation of the next one."""
    return cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(indent))


_LINE = cst.Comma(whitespace_after=_line("    "))
_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _breaks(comma: cst.Comma | cst.MaybeSentinel) -> bool:
    """Whether the line ends after a comma."""
    return isinstance(comma, cst.Comma) and isinstance(comma.whitespace_after, cst.ParenthesizedWhitespace)


def _keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    return cst.Arg(value, keyword=cst.Name(name), equal=_TIGHT)


def _named(arg: cst.Arg, name: str) -> cst.Arg:
    """The same argument with a keyword, on the line where it stands."""
    equal = arg.equal if isinstance(arg.equal, cst.AssignEqual) else _TIGHT
    return arg.with_changes(keyword=cst.Name(name), equal=equal)


def text_of(node: cst.BaseExpression | None) -> str | None:
    """Return the value of a plain string literal; None for anything else."""
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return value if isinstance(value, str) else None
    return None


def is_name(node: cst.BaseExpression | None, name: str) -> bool:
    """Whether an expression is this name, such as `True`."""
    return isinstance(node, cst.Name) and node.value == name


def code_of(node: cst.CSTNode) -> str:
    """Return the source of an expression."""
    return cst.Module([]).code_for_node(node)


def member_of(value: cst.BaseExpression, name: str) -> cst.Attribute:
    """Return an attribute of an expression, which is put in parentheses if it is awaited.

    Args:
        value: The expression.
        name: The name of the attribute.
    """
    if isinstance(value, cst.Await) and not value.lpar:
        value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.Attribute(value, cst.Name(name))
