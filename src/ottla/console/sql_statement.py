"""A SELECT over topics, checked: its topics, how little of each it needs, and its fields of JSON.

DuckDB parses it. Of the tree (`json_serialize_sql`) only those kinds of nodes and table functions
are let through that are listed here, since DuckDB's SQL also reads files, loads code and has
settings. The tree has the place of each name in the text, in bytes, so that these are rewritten:

| written | for DuckDB |
|---|---|
| `offset`, where a column is meant | `"offset"`, as it is a word of SQL |
| `from shop.orders` | `from "shop.orders"`, as topics have no schemas |
| `timestamp > '1h ago'` | the time, as `moments` understands it |
| `value.items[0].price` | `"value/items/0/price"(value)`: a macro that extracts it |
| `headers.trace` | `"headers/trace"(headers)`: the value of the last header of that name |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ottla.console.conditions import COMPARE, Conjunct
from ottla.console.moments import moment_ms
from ottla.console.refusals import Refused
from ottla.record.columnar import HEADERS

Node = Mapping[str, Any]

LONGEST: Final = 10_000
MOST_FIELDS: Final = 50
NOWHERE: Final = 2**64 - 1
"""The place of a name that DuckDB has added."""
TOKEN: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$\$.*?\$\$|--[^\n]*|/\*.*?\*/|\w+|\S", re.DOTALL
)
BEFORE_A_COLUMN: Final = frozenset(
    [
        "select",
        "distinct",
        "where",
        "and",
        "or",
        "not",
        "by",
        "on",
        "having",
        "qualify",
        "when",
        "then",
        "else",
        "case",
        "between",
        "in",
        "(",
        ",",
        "=",
        "<",
        ">",
        "+",
        "-",
        "*",
        "/",
        "%",
    ]
)
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
MACRO: Final = re.compile(r'"((?:key|value|headers)/[^"]+)"\([^()]*\)')
"""A macro of a field in the words of DuckDB."""
JSON_COLUMNS: Final = ("key", "value")
SIGNS: Final = {
    "COMPARE_EQUAL": "=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
}
TURNED: Final = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
assert TURNED.keys() <= COMPARE.keys()


class Edit(NamedTuple):
    """A part of the text, in bytes, and the text in its place."""

    start: int
    end: int
    text: str


class NamedField(NamedTuple):
    """A field of a JSON value or key, or a header, that a statement names."""

    part: str
    """`key`, `value` or `headers`."""
    path: tuple[str, ...]

    @property
    def pointer(self) -> str:
        """The JSON pointer (RFC 6901) of the field."""
        return "".join("/" + each.replace("~", "~0").replace("/", "~1") for each in self.path)

    @property
    def macro(self) -> str:
        """The name of the macro that extracts it, as SQL."""
        return quoted_name(self.part + self.pointer)

    def definition(self, kind: str, is_all_json: bool) -> str:
        """The body of the macro of `v`; a field has that type in the records.

        Where not all of the column is JSON, each value is looked at once more.
        """
        if self.part == HEADERS:
            name = quoted_text(".".join(self.path))
            return f"list_filter(v, lambda h: h.key = {name})[-1].value"
        function = "json_extract" if kind == "JSON" else "json_extract_string"
        found = f"{function}(v, {quoted_text(self.pointer)})"
        if not is_all_json:
            found = f"CASE WHEN json_valid(v) THEN {found} END"
        return f"CAST({found} AS {kind})"


class FieldUse(NamedTuple):
    """A place of the text, in bytes, where a field is named."""

    start: int
    end: int
    column: str
    """The column as SQL, with its table where that is named."""
    field: NamedField


class SqlStatement(NamedTuple):
    """A statement that was checked."""

    text: str
    """For DuckDB."""
    tables: dict[str, list[list[Conjunct]]]
    """Of each topic the conditions of each place that reads it; one without any reads all."""
    named: frozenset[str]
    """Names in small letters that the statement gives to tables of its own (`with`)."""
    fields: frozenset[NamedField]
    """Each has a macro in the text."""
    needs_headers: bool


def statement_of(text: str, parse: Callable[[str], Node], now_ms: int) -> SqlStatement:
    """The statement that a person has typed; Refused for one that is no SELECT over topics.

    `parse` returns the tree of DuckDB.
    """
    if len(text) > LONGEST:
        raise Refused(f"a statement may have {LONGEST:,} letters")
    text = with_offset_quoted(text)
    tree = parse(text)
    if tree.get("error"):
        raise Refused(parse_error(text, tree))
    if len(tree["statements"]) != 1:
        raise Refused("one SELECT is run at a time")
    return SelectReader(text, tree["statements"][0]["node"], now_ms).statement()


def parse_error(text: str, tree: Node) -> str:
    """The error of a parser, with the place where it is."""
    message = str(tree.get("error_message"))
    if "Only SELECT" in message:
        return "only SELECT is run here"
    at = str(tree.get("position", ""))
    if not at.isdecimal():
        return message
    lines = text.encode()[: int(at)].decode("utf-8", "ignore").split("\n")
    return f"line {len(lines)}, column {len(lines[-1]) + 1}: {message}"


def with_offset_quoted(text: str) -> str:
    """The text with `offset` in quotes where it cannot be the word of `limit 10 offset 5`."""
    before = ""

    def quoted(found: re.Match[str]) -> str:
        nonlocal before
        token = found[0].lower()
        is_column = token == "offset" and before in BEFORE_A_COLUMN
        before = before if token.startswith(("--", "/*")) else token
        return '"offset"' if is_column else found[0]

    return TOKEN.sub(quoted, text)


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


class SelectReader:
    """Reads the tree of one statement."""

    def __init__(self, text: str, tree: Node, now_ms: int) -> None:
        self._text = text
        self._data = text.encode()
        self._tree = tree
        self._now_ms = now_ms
        self._named: set[str] = set()
        self._tables: dict[str, list[list[Conjunct]]] = {}
        self._edits: dict[int, Edit] = {}
        self._fields: set[NamedField] = set()
        self._aliases: set[str] = set()

    def statement(self) -> SqlStatement:
        """The whole statement."""
        found = list(nodes(self._tree))
        for node in found:
            check(node)
            self._named |= {each["key"].lower() for each in node.get("cte_map", {}).get("map", ())}
            self._aliases |= {alias_of(node)} - {""}
        for node in found:
            if node.get("type") == "SELECT_NODE":
                self._read_select(node)
            elif node.get("type") == "BASE_TABLE":
                self._tables.setdefault(self._topic(node), [])
            self._read_times(node)
        self._read_fields()
        columns = {name for node in found for name in names_of(node)}
        needs_headers = HEADERS in columns or any(each.get("class") == "STAR" for each in found)
        tables = {name: reads or [[]] for name, reads in self._tables.items()}
        named, fields = frozenset(self._named), frozenset(self._fields)
        return SqlStatement(self._rewritten(), tables, named, fields, needs_headers)

    def _rewritten(self) -> str:
        data = self._data
        for each in sorted(self._edits.values(), reverse=True):
            data = data[: each.start] + each.text.encode() + data[each.end :]
        return data.decode()

    def _topic(self, node: Node) -> str:
        """The topic of a table, whose name may have dots."""
        path = [part for part in node["qualified_name"]["path"] if part]
        name, start = ".".join(path), node["query_location"]
        if len(path) > 1:
            if not self._data.startswith(name.encode(), start):
                raise Refused(f"a topic is written in quotes: {quoted_name(name)}")
            self._edits[start] = Edit(start, start + len(name.encode()), quoted_name(name))
        return name

    def _read_select(self, node: Node) -> None:
        """Note what the condition of a SELECT leaves of the topics that it reads."""
        sources = list(sources_of(node["from_table"]))
        conjuncts = list(self._conjuncts(node["where_clause"]))
        for each in sources:
            if each["type"] != "BASE_TABLE":
                continue
            tables = {"", alias_of(each)} if len(sources) == 1 else {alias_of(each)}
            renamed = each["column_name_alias"]
            own = [it for table, it in conjuncts if table in tables and not renamed]
            self._tables.setdefault(self._topic(each), []).append(own)

    def _conjuncts(self, node: Node | None) -> Iterator[tuple[str, Conjunct]]:
        """The comparisons of time, partition and offset that all rows pass, each with its table."""
        left = [node]
        while left:
            each = left.pop()
            if each is None:
                continue
            if each["type"] == "CONJUNCTION_AND":
                left += each["children"]
            for column, sign, constant in comparisons(each):
                *table, name = names_of(column)
                value = self._value(name, constant)
                if value is not None and len(table) <= 1:
                    yield table[0] if table else "", Conjunct(name, sign, value)

    def _value(self, name: str, constant: Node) -> int | None:
        kind, text = constant["literal"].get("kind"), str(constant["literal"].get("text"))
        if name == "timestamp" and kind == "STRING":
            return moment_ms(text, self._now_ms)
        is_number = name in ("partition", "offset") and kind == "INTEGER" and text.isdecimal()
        return int(text) if is_number and len(text) < 20 else None

    def _read_times(self, node: Node) -> None:
        """Times beside `timestamp` are written as people do."""
        for column, _, constant in comparisons(node):
            start, length = constant["query_location"], constant["query_location_length"]
            found = (
                self._value("timestamp", constant) if names_of(column)[-1] == "timestamp" else None
            )
            if found is not None and start != NOWHERE:
                there = datetime.fromtimestamp(found / 1000, UTC)
                words = f"TIMESTAMPTZ '{there:%Y-%m-%d %H:%M:%S}.{found % 1000:03}+00'"
                self._edits[start] = Edit(start, start + length, words)

    def _read_fields(self) -> None:
        """Put a macro in the place of each field; the longest names, and not their parts."""
        left: list[tuple[Any, bool]] = [(self._tree, False)]
        while left:
            node, is_result = left.pop()
            if isinstance(node, list):
                left += [(each, is_result) for each in node]
            elif isinstance(node, dict):
                use = self._field(node)
                if use is None:
                    left += [(each, name == "select_list") for name, each in node.items()]
                elif use.field.path and use.start != NOWHERE:
                    self._fields.add(use.field)
                    words = f"{use.field.macro}({use.column})"
                    if is_result and not node["alias"]:
                        words += f" AS {quoted_name(use.field.path[-1])}"
                    self._edits[use.start] = Edit(use.start, use.end, words)
        if len(self._fields) > MOST_FIELDS:
            raise Refused(f"a statement may name {MOST_FIELDS} fields")

    def _field(self, node: Node) -> FieldUse | None:
        """The field that an expression is; its path is empty for a column as it is."""
        start = node.get("query_location", 0)
        end = start + node.get("query_location_length", 0)
        if node.get("class") == "COLUMN_REF":
            names = node["column_names"]
            at = int(len(names) > 1 and names[0].lower() in self._aliases)
            part = names[at].lower()
            if part not in (*JSON_COLUMNS, HEADERS):
                return None
            column = ".".join(map(quoted_name, names[: at + 1]))
            return FieldUse(start, end, column, NamedField(part, tuple(names[at + 1 :])))
        if node.get("type") not in ("STRUCT_EXTRACT", "ARRAY_EXTRACT"):
            return None
        inner, step = node["children"]
        found = self._field(inner)
        if found is None or found.field.part == HEADERS or step.get("class") != "CONSTANT":
            return None
        path = (*found.field.path, str(step["literal"].get("text")))
        start, end = min(found.start, start), max(found.end, end)
        return FieldUse(start, end, found.column, found.field._replace(path=path))


def check(node: Node) -> None:
    """Refused for a node that may do more than select."""
    kind, name = node.get("type"), str(node.get("function_name", "")).lower()
    if "class" in node:
        if node["class"] not in EXPRESSIONS:
            raise Refused(f"a SELECT has no {node['class'].lower()} here")
        if name in FORBIDDEN:
            raise Refused(f"the function {name} is not there")
    elif isinstance(kind, str):
        if kind not in KINDS:
            raise Refused(f"a SELECT has no {kind.removesuffix('_NODE').lower()} here")
        if kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name")).lower()
            if name not in TABLE_FUNCTIONS:
                raise Refused(f"the table {name}() is not there: tables are topics")


def sources_of(table: Node) -> Iterator[Node]:
    """The tables that a SELECT joins."""
    left = [table]
    while left:
        each = left.pop()
        if each["type"] == "JOIN":
            left += [each["left"], each["right"]]
        else:
            yield each


def alias_of(node: Node) -> str:
    """The name of a table within its SELECT, in small letters; empty for other nodes."""
    if "class" in node or node.get("type") not in KINDS:
        return ""
    return str(node.get("alias") or node.get("table_name") or "").lower()


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


def column_name(name: str) -> str:
    """The name of a column of a result, in which fields are written as people do."""
    return MACRO.sub(lambda found: found[1].replace("/", "."), name)


def quoted_name(name: str) -> str:
    """A name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A text as SQL."""
    return "'" + text.replace("'", "''") + "'"
