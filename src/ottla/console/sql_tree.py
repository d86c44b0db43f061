"""The tree of DuckDB's parser (`json_serialize_sql`): what a SELECT over topics may have in it.

DuckDB's SQL also reads files, loads code and has settings, so only those kinds of nodes, functions
of tables and functions are let through that are listed here, or are not forbidden here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ottla.console.conditions import COMPARE
from ottla.console.refusals import Refused

Node = Mapping[str, Any]

EXPRESSIONS: Final = frozenset(
    [
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "COLUMN_REF",
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "FUNCTION",
        "LAMBDA",
        "LAMBDA_REF",
        "OPERATOR",
        "POSITIONAL_REFERENCE",
        "STAR",
        "SUBQUERY",
        "TYPE",
        "WINDOW",
    ]
)
"""Classes of expressions."""
KINDS: Final = frozenset(
    [
        "SELECT_NODE",
        "SET_OPERATION_NODE",
        "CTE_NODE",
        "RECURSIVE_CTE_NODE",
        "BASE_TABLE",
        "JOIN",
        "SUBQUERY",
        "EMPTY",
        "EXPRESSION_LIST",
        "TABLE_FUNCTION",
        "PIVOT",
        "ORDER_MODIFIER",
        "LIMIT_MODIFIER",
        "LIMIT_PERCENT_MODIFIER",
        "DISTINCT_MODIFIER",
        "ORDER_DEFAULT",
        "ASCENDING",
        "DESCENDING",
    ]
)
"""Types of all other nodes."""
TABLE_FUNCTIONS: Final = frozenset({"unnest", "range", "generate_series", "json_each", "json_tree"})
FORBIDDEN: Final = frozenset(
    [
        "current_setting",
        "getenv",
        "getvariable",
        "json_deserialize_sql",
        "json_serialize_plan",
        "nextval",
        "currval",
        "pg_sleep",
        "setseed",
        "setval",
        "sleep_ms",
        "write_log",
    ]
)
"""Functions that wait, have effects, or say something of the process."""
SIGNS: Final = {
    "COMPARE_EQUAL": "=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
}
TURNED: Final = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
assert TURNED.keys() <= COMPARE.keys()


def nodes(tree: Any) -> Iterator[Node]:
    """All nodes of a tree."""
    left = [tree]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            yield found
            left += found.values()
        elif isinstance(found, list):
            left += found


def check(node: Node) -> None:
    """Refused for a node that may do more than select."""
    kind, name = kind_of(node), str(node.get("function_name", "")).lower()
    if "class" in node:
        if node["class"] not in EXPRESSIONS:
            raise Refused(f"a SELECT has no {node['class'].lower()} here")
        if name in FORBIDDEN:
            raise Refused(f"the function {name} is not there")
    elif kind:
        if kind not in KINDS:
            raise Refused(f"a SELECT has no {kind.removesuffix('_NODE').lower()} here")
        if kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name")).lower()
            if name not in TABLE_FUNCTIONS:
                raise Refused(f"the table {name}() is not there: tables are topics")


def kind_of(node: Node) -> str:
    """The type of a node; empty for the parts of a tree that are none, such as types of values."""
    kind = node.get("type")
    return kind if isinstance(kind, str) else ""


def sources_of(table: Node) -> Iterator[Node]:
    """The tables that a SELECT joins."""
    left = [table]
    while left:
        each = left.pop()
        if kind_of(each) == "JOIN":
            left += [each["left"], each["right"]]
        else:
            yield each


def is_by_place(select: Node) -> bool:
    """Whether rows are joined or drawn by what else is in their tables.

    Then a condition means another thing before than behind it: `asof join`, `positional join`, and
    samples.
    """
    left = [select["from_table"]]
    while left:
        each = left.pop()
        if each.get("sample") or each.get("ref_type") in ("ASOF", "POSITIONAL"):
            return True
        if kind_of(each) == "JOIN":
            left += [each["left"], each["right"]]
    return bool(select.get("sample"))


def table_of(node: Node) -> str:
    """The name of a table as it is written, with its dots; empty for other nodes."""
    is_table = kind_of(node) == "BASE_TABLE"
    return ".".join(filter(None, node["qualified_name"]["path"])) if is_table else ""


def alias_of(node: Node) -> str:
    """The name of a table within its SELECT, in small letters; empty for other nodes."""
    if "class" in node or kind_of(node) not in KINDS:
        return ""
    return (str(node.get("alias") or "") or table_of(node)).lower()


def names_of(node: Node) -> list[str]:
    """The names of a column, in small letters; none for other nodes."""
    is_column = node.get("class") == "COLUMN_REF"
    return [each.lower() for each in node["column_names"]] if is_column else []


def comparisons(node: Node) -> Iterator[tuple[Node, str, Node]]:
    """The comparisons of a column with a constant that a node is, the column on the left."""
    pairs: list[tuple[Node, str, Node]] = []
    if node.get("class") == "COMPARISON" and node["type"] in SIGNS:
        sign = SIGNS[node["type"]]
        pairs = [
            (node["left"], sign, node["right"]),
            (node["right"], TURNED[sign], node["left"]),
        ]
    elif node.get("class") == "BETWEEN" and node["type"] == "COMPARE_BETWEEN":
        pairs = [(node["input"], ">=", node["lower"]), (node["input"], "<=", node["upper"])]
    for column, sign, constant in pairs:
        is_constant = constant.get("class") == "CONSTANT" and "literal" in constant
        if is_constant and names_of(column):
            yield column, sign, constant
