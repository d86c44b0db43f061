"""The tree of a statement, and what is let through of it."""

from __future__ import annotations

import pytest

from ottla.console.refusals import Refused
from ottla.console.sql_tree import alias_of, check, comparisons, kind_of, nodes, table_of

TABLE = {"type": "BASE_TABLE", "alias": "", "qualified_name": {"path": ["", "shop", "orders"]}}
OFFSET = {"class": "COLUMN_REF", "column_names": ["o", "Offset"]}
THREE = {"class": "CONSTANT", "literal": {"kind": "INTEGER", "text": "3"}}


def test_table_has_the_name_that_is_written():
    """With its dots, where it has no other one."""
    assert (table_of(TABLE), alias_of(TABLE)) == ("shop.orders", "shop.orders")
    assert alias_of(TABLE | {"alias": "O"}) == "o"
    assert table_of({"type": "JOIN"}) == alias_of(OFFSET | {"type": "COLUMN_REF"}) == ""


def test_parts_that_are_no_nodes_are_passed_over():
    """The size of a sample has a type that is a part of the tree itself."""
    size = {"type": {"id": "BIGINT"}, "value": 5}
    assert kind_of(size) == alias_of(size) == ""
    check(size)
    assert list(nodes([{"a": [size]}])) == [{"a": [size]}, size, {"id": "BIGINT"}]


@pytest.mark.parametrize(
    "node",
    [
        {"class": "PARAMETER", "type": "VALUE_PARAMETER"},
        {"type": "SHOW_REF"},
        {"type": "TABLE_FUNCTION", "function": {"function_name": "Read_Text"}},
        {"class": "FUNCTION", "type": "FUNCTION", "function_name": "GetEnv"},
    ],
)
def test_what_is_not_listed_is_refused(node):
    """Whatever letters it is written in."""
    with pytest.raises(Refused):
        check(node)


def test_comparison_has_its_column_on_the_left():
    """However it is written."""
    node = {"class": "COMPARISON", "type": "COMPARE_LESSTHAN", "left": THREE, "right": OFFSET}
    assert list(comparisons(node)) == [(OFFSET, ">", THREE)]
