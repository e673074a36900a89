"""What the parts of the second pass share: the module, what stands around a node, and what the rewrite asks for."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from gemel.migrate.bindings import Bindings
from gemel.migrate.names import Name
from gemel.migrate.written import Written


class RewriteState:
    """The state of the second pass over one module. Each part of the pass reads and changes it.

    Args:
        bindings: What the expressions of the module refer to.
    """

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings

        #: What is left to do, by line.
        self.notes: list[tuple[int, str]] = []
        #: Names to import from Gemel and elsewhere, besides those that replace imports in place.
        self.imports: set[Name] = set()
        #: Local names of imports that the module used, so that an import without a use can go.
        self.dropped: set[str] = set()
        #: What the servers do as the other library does, other than Gemel by default.
        self.kept: set[str] = set()
        #: Functions and classes of the other library that are written out.
        self.written: list[str] = []
        #: What is written out in place of methods.
        self.written_for_calls: list[Written] = []

        #: The functions of the module, and the names of its functions and classes.
        self.functions: list[cst.FunctionDef] = []
        self.defined: set[str] = set()
        #: Whether the module imports FastMCP, and the extension for tasks.
        self.fastmcp = False
        self.has_tasks = False

        #: Of each function around a node: whether it is registered as a tool, resource or prompt, and whether it is async.
        self.registered: list[bool] = []
        self.asynchronous: list[bool] = []
        #: Loops around a node, and `try` statements that catch declined questions.
        self.loops = 0
        self.declining = 0

        #: Members that are rewritten with what stands around them, and stay as they are themselves.
        self.replaced_members: set[cst.CSTNode] = set()

    def scan(self, module: cst.Module) -> None:
        """Find the functions and classes of the module, before anything is rewritten."""
        for found in m.findall(module, m.FunctionDef() | m.ClassDef()):
            assert isinstance(found, cst.FunctionDef | cst.ClassDef)
            self.defined.add(found.name.value)
            if isinstance(found, cst.FunctionDef):
                self.functions.append(found)

    @property
    def in_async(self) -> bool:
        """Whether a node stands in an async function, or in none."""
        return not self.asynchronous or self.asynchronous[-1]

    def note(self, node: cst.CSTNode, text: str) -> None:
        """Note what is left to do at a node, once."""
        note = (self.bindings.line(node), text)
        if note not in self.notes:
            self.notes.append(note)

    def drop(self, node: cst.CSTNode) -> None:
        """Note that the names in a node may have lost their uses."""
        for name in m.findall(node, m.Name()):
            assert isinstance(name, cst.Name)
            self.dropped.add(name.value)
