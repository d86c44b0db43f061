"""The sizes that modules, classes and functions keep. A limit may only get tighter.

A module is one noun with all that reaches into its private parts: a lower limit on modules had
nouns cut into pieces, so that theirs is wide, and those of classes and functions are narrow.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from collections import Counter

from sources import Source, house, sources

MODULE_LINES = 950
BROKER_LINES = 300
CLASS_LINES = 450
FUNCTION_LINES = 60
FUNCTION_MEDIAN_LINES = 8
FUNCTION_95TH_PERCENTILE_LINES = 23
PARAMETERS = 8
LINE_LENGTH = 100
NESTING = 5
IDIOMS_IN_1000_WORDS = 0.25
LATE_CLASSES = 1
LATE_IMPORTS = 110
PROTOCOLS = 34
CLASS_NAMES_TWICE = 12
CONSTANTS_ALIKE = 23
IDIOMS = re.compile(
    r"\b(whoever|whatever|whomever|of which|of whom|is to be|are to be|any more|for ever|anew"
    r"|thereby|hitherto|goes on|go on|come of|comes of|lies behind|the books|the house)\b",
    re.IGNORECASE,
)

OF_OUR_OWN = {"what": 2.0, "who": 0.2, "told": 0.2, "tells": 0.2}
"""How often words may stand in 1,000: they point at a thing where others name it."""

BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith, ast.Match)


def lines(node: ast.stmt) -> int:
    """The lines of a definition, without decorators."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def depth(node: ast.AST) -> int:
    """How deep blocks nest inside a function; an elif counts as its if."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        is_elif = (
            isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse[:1] == [child]
        )
        deepest = max(deepest, depth(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def test_modules_hold_one_noun():
    """No module is longer than 950 lines, tests and benchmarks included."""
    everything = sources("src", "tests", "benchmarks")

    assert not [
        f"{source.name}: {count} lines"
        for source in everything
        if (count := source.text.count("\n")) > MODULE_LINES
    ]


def test_broker_is_a_list_of_its_parts():
    """Whoever wants to know a start reads one file, which does nothing but build and begin."""
    (broker,) = [source for source in house() if source.name == "src/ottla/server/broker.py"]

    assert broker.text.count("\n") <= BROKER_LINES


def test_classes_stay_small():
    """No class is longer than its limit."""
    assert not [
        f"{source.name}:{node.lineno} {node.name}: {lines(node)} lines"
        for source in house()
        for node in source.classes
        if lines(node) > CLASS_LINES
    ]


def test_functions_stay_small():
    """No function is longer than 60 lines, 19 of 20 have at most 23, and half of them eight."""
    sizes = [(lines(node), source, node) for source in house() for node in source.functions]

    assert not [
        f"{source.name}:{node.lineno} {node.name}: {size} lines"
        for size, source, node in sizes
        if size > FUNCTION_LINES
    ]
    lengths = sorted(size for size, _, _ in sizes)
    assert statistics.median(lengths) <= FUNCTION_MEDIAN_LINES
    assert lengths[len(lengths) * 19 // 20] <= FUNCTION_95TH_PERCENTILE_LINES


def test_no_comment_stands_as_a_heading():
    """What needs a heading of its own is a file; order and names say the rest."""
    heading = re.compile(r"\n\n\n# |\n\n(#.*\n)+\n")
    assert not [source.name for source in house() if heading.search(source.text)]


def test_files_begin_with_the_class_that_names_them():
    """A reader meets it in the first half of a file, but for a few whose values come first."""
    late = [
        f"{source.name}:{node.lineno} {node.name}"
        for source in house()
        for node in source.tree.body
        if isinstance(node, ast.ClassDef)
        and node.name.lower() == source.path.stem.replace("_", "")
        and node.lineno > source.text.count("\n") / 2
        and source.text.count("\n") > 80
    ]
    assert len(late) <= LATE_CLASSES, late


def test_imports_stand_at_the_top():
    """Only a start that must be quick, or a package that may be missing, has them in functions."""
    late = [
        f"{source.name}:{node.lineno} {node.module}"
        for source in house()
        for function in source.functions
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ottla")
    ]
    assert len(set(late)) <= LATE_IMPORTS, late


def test_protocols_are_few():
    """A Protocol has several implementers, in rooms that do not know each other; else a class does.

    For two implementers beside each other a union is enough, for one method a callable.
    """
    protocols = [
        f"{source.name}:{node.lineno} {node.name}"
        for source in house()
        for node in source.classes
        if "Protocol" in map(ast.unparse, node.bases)
    ]
    assert len(protocols) <= PROTOCOLS, protocols


def test_names_of_classes_stand_once():
    """Two classes of one name are told apart by their folders only; few are worth it."""
    found = Counter(
        node.name
        for source in house()
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    twice = [name for name, count in found.items() if count > 1]
    assert len(twice) <= CLASS_NAMES_TWICE, twice


def test_constants_stand_once():
    """What several modules must know alike is defined by one of them."""
    found = Counter(
        f"{ast.unparse(target)} = {ast.unparse(node.value)}"
        for source in house()
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Constant | ast.UnaryOp)
        and ast.unparse(target := getattr(node, "target", None) or node.targets[0]).isupper()
    )
    too_many = sum(count - 1 for count in found.values())
    assert too_many <= CONSTANTS_ALIKE, [text for text, count in found.items() if count > 1]


def test_parameter_lists_stay_short():
    """More than eight parameters ask for a config or request object."""
    assert not [
        f"{source.name}:{node.lineno} {node.name}: {count} parameters"
        for source in house()
        for node in source.functions
        if (count := len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs))
        > PARAMETERS
    ]


def test_nesting_stays_flat():
    """Blocks nest no deeper than the limit."""
    assert not [
        f"{source.name}:{node.lineno} {node.name}: {count} deep"
        for source in house()
        for node in source.functions
        if (count := depth(node)) > NESTING
    ]


def test_lines_fit_the_page():
    """No line is longer than 100 characters."""
    assert not [
        f"{source.name}:{number}"
        for source in sources("src", "tests", "benchmarks")
        for number, line in enumerate(source.text.splitlines(), 1)
        if len(line) > LINE_LENGTH
    ]


def prose(source: Source) -> str:
    """The docstrings and comments of a file."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) or "" for node in source.nodes if isinstance(node, kinds)]
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    return " ".join(texts + [each.string for each in tokens if each.type == tokenize.COMMENT])


def test_prose_names_its_things():
    """The field's nouns and not pronouns, which hold up a reader who does not know the code."""
    found = {
        source.name: Counter(re.findall(r"[a-z']+", prose(source).lower())) for source in house()
    }
    total = sum(counted.total() for counted in found.values())
    for word, limit in OF_OUR_OWN.items():
        often = Counter({name: counted[word] for name, counted in found.items()})
        assert 1_000 * often.total() / total <= limit, (word, often.most_common(5))


def test_docstrings_are_plain():
    """English that only its author reads fast: few words of it, in all docstrings together."""
    texts = [
        ast.get_docstring(node) or ""
        for source in house()
        for node in source.nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    words = sum(len(text.split()) for text in texts)
    idioms = [found.group() for text in texts for found in IDIOMS.finditer(text)]

    assert 1_000 * len(idioms) / words <= IDIOMS_IN_1000_WORDS, idioms
