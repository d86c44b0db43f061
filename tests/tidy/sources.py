"""Where the tidy tests look: every Python file of the house, parsed once."""

from __future__ import annotations

import ast
import gc
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file, its text and its syntax tree."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        tree = ast.parse(self.text, filename=str(self.path))
        gc.freeze()  # it lives as long as the tests: the collector need not visit it
        return tree

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, outer ones first: walking it takes as long as parsing."""
        return tuple(ast.walk(self.tree))

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def room(self) -> str:
        """The folder directly below src/ottla, or the module's own name at the top level."""
        return self.path.relative_to(ROOT / "src" / "ottla").parts[0].removesuffix(".py")

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in self.nodes if isinstance(node, kinds)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]


def sources(*folders: str) -> list[Source]:
    """The Python files below the folders, in a stable order."""
    return [source for folder in folders for source in _sources_below(folder)]


@cache
def _sources_below(folder: str) -> list[Source]:
    return [
        Source(path)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "__pycache__" not in path.parts
    ]


def house() -> list[Source]:
    """The files of src/ottla."""
    return sources("src/ottla")
