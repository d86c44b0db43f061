"""A SELECT over topics, checked: its topics, how little of each it needs, and its fields of JSON.

DuckDB parses it, and `sql_tree` says what its tree may have. That has the place of each name in the
text, in bytes, so that these are rewritten:

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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from ottla.console.conditions import Conjunct
from ottla.console.moments import moment_ms
from ottla.console.refusals import Refused
from ottla.console.sql_tree import (
    Node,
    alias_of,
    check,
    comparisons,
    is_by_place,
    kind_of,
    names_of,
    nodes,
    sources_of,
    table_of,
)
from ottla.record.columnar import HEADERS
from ottla.structs import NamedTuple

LONGEST: Final = 10_000
MOST_FIELDS: Final = 50
NOWHERE: Final = 2**64 - 1
"""The place of a name that DuckDB has added."""
TOKEN: Final = re.compile(
    r"[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(\$\w*\$).*?\1"
    r"|--[^\n]*|/\*.*?\*/|\w+|\S",
    re.DOTALL,
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
MACRO: Final = re.compile(r'"((?:key|value|headers)/[^"]+)"\([^()]*\)')
"""A macro of a field in the words of DuckDB."""
CAPITALS: Final = re.compile(r"\^[0-9a-f]+$")
"""What the name of a macro has behind that of its field."""
JSON_COLUMNS: Final = ("key", "value")
COLUMNS: Final = frozenset({"partition", "offset", "timestamp", *JSON_COLUMNS, HEADERS})
"""The columns of a topic."""


QUOTED_COLUMN: Final = re.compile(rf'"({"|".join(sorted(COLUMNS))})"')


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
        """The name of the macro that extracts it, as SQL.

        DuckDB tells no capital letters in names, so a number says behind them which they are.
        """
        name = self.part + self.pointer
        capitals = "".join("01"[each != each.lower()] for each in name)
        if "1" in capitals or "^" in name:
            name += f"^{int(capitals, 2):x}"
        return quoted_name(name)

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
    table: str
    """That of the column where it is named."""
    name: str
    """That of the column."""
    field: NamedField

    @property
    def words(self) -> str:
        """The field as SQL."""
        column = ".".join(map(quoted_name, filter(None, (self.table, self.name))))
        return f"{self.field.macro}({column})" if self.field.path else column


class SqlStatement(NamedTuple):
    """A statement that was checked."""

    text: str
    """The statement as DuckDB gets it."""
    tables: dict[str, list[list[Conjunct]]]
    """The conditions of each place that reads a topic, by topic; a place without any reads all."""
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
        self._aliases: dict[str, bool] = {}
        """Names of tables in small letters, and whether they are topics."""

    def statement(self) -> SqlStatement:
        """The whole statement."""
        found = list(nodes(self._tree))
        for node in found:
            check(node)
            self._named |= {each["key"].lower() for each in node.get("cte_map", {}).get("map", ())}
        for node in found:
            if alias := alias_of(node):
                table = table_of(node).lower()
                self._aliases[alias] = bool(table) and table not in self._named
            if kind_of(node) == "SELECT_NODE":
                self._read_select(node)
            elif kind_of(node) == "BASE_TABLE":
                self._tables.setdefault(self._topic(node), [])
            self._read_times(node)
        self._read_fields()
        columns = {name for node in found for name in names_of(node)}
        has_rows = any(each.get("class") == "STAR" for each in found) or columns & {*self._aliases}
        needs_headers = HEADERS in columns or bool(has_rows)
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
        name, start = table_of(node), node["query_location"]
        if len(path) > 1:
            if not self._data.startswith(name.encode(), start):
                raise Refused(f"a topic is written in quotes: {quoted_name(name)}")
            self._edits[start] = Edit(start, start + len(name.encode()), quoted_name(name))
        return name

    def _read_select(self, node: Node) -> None:
        """Note what the condition of a SELECT leaves of the topics that it reads."""
        sources = list(sources_of(node["from_table"]))
        conjuncts = [] if is_by_place(node) else list(self._conjuncts(node["where_clause"]))
        for each in sources:
            if kind_of(each) != "BASE_TABLE":
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
                if value is not None:
                    yield ".".join(table), Conjunct(name, sign, value)

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
                elif use.start != NOWHERE and (use.field.path or "." in use.table):
                    words = use.words
                    if use.field.path:
                        self._fields.add(use.field)
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
            table, (part, *path) = self._split(node["column_names"])
            if part.lower() not in (*JSON_COLUMNS, HEADERS) and "." not in table:
                return None
            return FieldUse(start, end, table, part, NamedField(part.lower(), tuple(path)))
        if kind_of(node) not in ("STRUCT_EXTRACT", "ARRAY_EXTRACT", "ARRAY_SLICE"):
            return None
        inner, step, *_ = node["children"]
        found = self._field(inner)
        if found is None or found.field.part == HEADERS or step.get("class") != "CONSTANT":
            return None
        literal = step["literal"]
        name = str(literal.get("text"))
        if kind_of(node) == "ARRAY_SLICE" or (literal.get("kind") == "INTEGER" and "-" in name):
            raise Refused("an item of a list of JSON is named by its number, from the first: [0]")
        field = found.field._replace(path=(*found.field.path, name))
        return found._replace(start=min(found.start, start), end=max(found.end, end), field=field)

    def _split(self, names: list[str]) -> tuple[str, list[str]]:
        """The table of a column, empty where it has none, and the names behind it."""
        for count in range(len(names) - 1, 0, -1):
            table = ".".join(names[:count])
            is_topic = self._aliases.get(table.lower())
            if is_topic is False or (is_topic and names[count].lower() in COLUMNS):
                return table, names[count:]
        return "", names


def column_name(name: str) -> str:
    """The name of a column of a result, as people write it."""
    name = MACRO.sub(lambda found: CAPITALS.sub("", found[1]).replace("/", "."), name)
    return QUOTED_COLUMN.sub(r"\1", name).replace("count_star()", "count(*)")


def quoted_name(name: str) -> str:
    """A name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A text as SQL."""
    return "'" + text.replace("'", "''") + "'"
