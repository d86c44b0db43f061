"""SQL as people type it: what is let through, and how little of each topic it needs."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import duckdb
import pytest

from ottla.console.refusals import Refused
from ottla.console.sql_statement import (
    NamedField,
    column_name,
    statement_of,
    with_offset_quoted,
)

NOW = 1_795_878_000_000
HOUR = 3_600_000


@pytest.fixture(scope="module")
def statement():
    """A function that reads a statement; DuckDB parses it."""
    with duckdb.connect() as connection:

        def parse(words: str):
            rows = connection.execute("SELECT json_serialize_sql(?)", [words]).fetchall()
            return json.loads(rows[0][0])

        yield lambda text: statement_of(text, parse, NOW)


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("select 1", {}),
        ("from orders", {"orders": [[]]}),
        (
            "select * from orders where timestamp > '1h ago' and partition = 2 and key = 'x'",
            {"orders": [[("timestamp", ">", NOW - HOUR), ("partition", "=", 2)]]},
        ),
        (
            "select * from orders o where o.offset between 3 and 5 and 7 > o.offset",
            {"orders": [[("offset", ">=", 3), ("offset", "<=", 5), ("offset", "<", 7)]]},
        ),
        ("select * from orders where offset > 3 or partition = 1", {"orders": [[]]}),
        ("select * from orders where not (offset > 3)", {"orders": [[]]}),
        (
            "select * from a join b on a.key = b.key where a.offset > 3 and partition = 1",
            {"a": [[("offset", ">", 3)]], "b": [[]]},
        ),
        (
            "select * from a where offset > 3 union all select * from a where offset < 2",
            {"a": [[("offset", ">", 3)], [("offset", "<", 2)]]},
        ),
        ("select * from a as t(x, offset) where offset > 3", {"a": [[]]}),
        *(
            (f"select * from a {join} join b on a.offset >= b.offset where b.partition = 1", it)
            for join, it in [
                ("asof", {"a": [[]], "b": [[]]}),
                ("left", {"a": [[]], "b": [[("partition", "=", 1)]]}),
            ]
        ),
        ("select * from a positional join b where b.partition = 1", {"a": [[]], "b": [[]]}),
        ("select * from a tablesample 3 rows where partition = 1", {"a": [[]]}),
        ("select * from a where partition = 1 using sample 3", {"a": [[]]}),
        ("from a.b where a.b.offset > 3", {"a.b": [[("offset", ">", 3)]]}),
        ("with t as (from shop.orders) select * from t", {"shop.orders": [[]], "t": [[]]}),
    ],
)
def test_conditions_say_what_is_read(statement, text, tables):
    """Those of time, partition and offset that every row passes; each place reads its own."""
    found = statement(text).tables
    own = {name: sorted(map(sorted, reads)) for name, reads in tables.items()}
    assert {name: sorted(map(sorted, reads)) for name, reads in found.items()} == own


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("select offset from t", 'select "offset" from t'),
        ("select a, offset from t limit 2 offset 1", 'select a, "offset" from t limit 2 offset 1'),
        ("select 'x, offset' -- , offset", "select 'x, offset' -- , offset"),
        (r"select e'\' , offset ', $a$ , offset $a$", r"select e'\' , offset ', $a$ , offset $a$"),
        ("select max( OFFSET )", 'select max( "offset" )'),
        ("select a from t order by a offset 3", "select a from t order by a offset 3"),
    ],
)
def test_offset_is_a_column_where_it_can_be_none_else(text, rewritten):
    """`limit 2 offset 1` keeps its word."""
    assert with_offset_quoted(text) == rewritten


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("select value.a from t", 'select "value/a"("value") AS "a" from t'),
        ("select value.a as b from t", 'select "value/a"("value") as b from t'),
        ("select 'é', o.value.a + 1 from t o", 'select \'é\', "value/a"("o"."value") + 1 from t o'),
        ('select value.l[0]."a/b" x from t', 'select "value/l/0/a~1b"("value") x from t'),
        ("select value['a b'] from t", 'select "value/a b"("value") AS "a b" from t'),
        ("select key.id, value from t", 'select "key/id"("key") AS "id", value from t'),
        ("select headers.trace from t", 'select "headers/trace"("headers") AS "trace" from t'),
        ("from shop.orders", 'from "shop.orders"'),
        ("select value.A from t", 'select "value/A^1"("value") AS "A" from t'),
        (
            "select a.b.value.c, a.b.offset, a.b.key from a.b",
            'select "value/c"("a.b"."value") AS "c", "a.b"."offset", "a.b"."key" from "a.b"',
        ),
        (
            "select value.a, value.value.a from value",
            'select "value/a"("value") AS "a", "value/a"("value"."value") AS "a" from value',
        ),
        ("select value.key from x as value", "select value.key from x as value"),
    ],
)
def test_fields_and_topics_are_rewritten(statement, text, rewritten):
    """A field is a macro, under its own name; a topic with dots is one name."""
    assert statement(text).text == rewritten


def test_times_are_those_of_the_search(statement):
    """Relative ones, and dates in the zone of this machine."""
    found = statement("select timestamp > 'now' from t where '1h ago' <= timestamp").text
    for ms in (NOW, NOW - HOUR):
        assert f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}" in found


@pytest.mark.parametrize("text", ["select t from t", "from t", "select headers from t as x"])
def test_headers_are_read_where_they_are_needed(statement, text):
    """Also where a whole row is a value."""
    assert statement(text).needs_headers
    assert not statement("select key from t").needs_headers


def test_names_of_macros_differ_by_more_than_capitals():
    """As DuckDB takes those for one name."""
    fields = [NamedField("value", (name,)) for name in ("a", "A", "a^1", "aB", "Ab", "AB", "b")]
    assert len({each.macro.lower() for each in fields}) == len(fields)


def test_column_has_the_name_of_its_field():
    """Not that of the macro."""
    assert column_name('sum("value/a/b"(o."value"))') == "sum(value.a.b)"
    assert column_name('max("value/A^1"("value"))') == "max(value.A)"
    assert column_name('max(o."timestamp")') == "max(o.timestamp)"
    assert column_name("count_star()") == "count(*)"
    assert NamedField("value", ("a~/b",)).pointer == "/a~0~1b"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("selec", "line 1, column 1: syntax error"),
        ("select 1;\nselect 2", "one SELECT"),
        ("", "one SELECT"),
        ("insert into orders values (1)", "only SELECT"),
        ("with x as (insert into orders values (1) returning *) from x", "no insert_query"),
        ("copy orders to '/tmp/x'", "only SELECT"),
        ("attach '/tmp/x'", "only SELECT"),
        ("install httpfs", "only SELECT"),
        ("set threads = 9", "only SELECT"),
        ("pragma database_list", "only SELECT"),
        ("show tables", "no show_ref"),
        ("from read_text('/etc/passwd')", r"read_text\(\) is not there"),
        ("from duckdb_settings()", "is not there"),
        ("from query('select 1')", "is not there"),
        ("select current_setting('memory_limit')", "current_setting is not there"),
        ("select sleep_ms(1000000)", "sleep_ms is not there"),
        ("select $1", "no parameter"),
        ("select value.l[-1] from t", "by its number, from the first"),
        ("select value.l[0:2] from t", "by its number, from the first"),
        ("select " + "1," * 6_000 + "1", "letters"),
        ("select " + ",".join(f"value.f{n}" for n in range(51)) + " from t", "50 fields"),
    ],
)
def test_everything_else_is_refused(statement, text, reason):
    """With the reason."""
    with pytest.raises(Refused, match=reason):
        statement(text)
