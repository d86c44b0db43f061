"""The cage of a statement, and the values that come out of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from urllib.parse import quote

import pytest
from sql_world import result
from topics_of_records import START, send
from visitor import Visitor, visit

from ottla.console.refusals import Refused
from ottla.console.sql_worker import cell, type_of

HOSTILE = (
    "from '/etc/passwd'",
    "from read_csv('/etc/passwd')",
    "from glob('/*')",
    "copy (select 1) to '/tmp/x'",
    "attach '/tmp/x.db'",
    "install httpfs",
    "load httpfs",
    "set enable_external_access = true",
    "select 1; set lock_configuration = false",
    "pragma version",
    "select getenv('HOME')",
    "select * from range(1000000) a, range(1000000) b, range(1000000) c order by random()",
    "with recursive r as (select 1 as n union all select n + 1 from r) select count(*) from r",
    "select repeat('x', 1000000000)",
    "select list(range) from range(1000000000)",
    "create table x (a int)",
    "call pragma_version()",
    "from sniff_csv('/etc/passwd')",
    "select write_log('x')",
    "select " + "(" * 4_000 + "1" + ")" * 4_000,
)

TOO_LARGE = "select repeat('x', 20000000) as a"


def test_values_are_what_they_are(shop, here):
    """Text where they are no JSON, escapes where they are no text, the last of equal headers."""
    text = (
        "select offset, key, value.a[0].b, value.a, value.n, headers.h, value "
        "from shop.odd order by offset"
    )

    async def walk(visitor: Visitor) -> None:
        rows = [[*each.values()] for each in (await result(visitor, text))["rows"]]
        first = '{"a": [{"b": 1.5}], "n": 9007199254740993}'
        assert rows[0] == [0, "\\xff", 1.5, '[{"b":1.5}]', 9007199254740993, "2", first]
        assert rows[1] == [1, None, None, None, None, None, "no json"]
        assert rows[2] == [2, "k", None, None, None, None, None]
        assert rows[3][3:5] == ["text", -1]

    visit(shop.bootstrap_servers, walk)


def test_integers_may_be_large(shop, here):
    """Those that need all 64 bits too, and fields whose names differ by capital letters alone."""
    shop.create_topic("large", 1)
    values = [b'{"n": 18446744073709551615, "N": "a"}', b'{"n": -9223372036854775808}']
    send(shop, "large", *[(0, START, None, each, []) for each in values])

    async def walk(visitor: Visitor) -> None:
        found = await result(visitor, "select value.n, value.N as m, value.n + 1 as o from large")
        assert [[*each.values()] for each in found["rows"]] == [
            [18446744073709551615, "a", 18446744073709551616],
            [-9223372036854775808, None, -9223372036854775807],
        ]

    visit(shop.bootstrap_servers, walk)


@pytest.mark.parametrize("columns", ["*", "count(*)", "1"])
@pytest.mark.parametrize("table", ["pg_settings", "duckdb_logs", "/etc/passwd"])
def test_table_that_is_named_elsewhere_is_none_of_duckdb(shop, here, table, columns):
    """Tables are topics: those that DuckDB has of its own are not there."""
    text = (
        f'select {columns} from (with "{table}" as (select 1) select * from "{table}"), "{table}"'
    )

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get(f"/sql?q={quote(text)}")
        assert f"There is no topic {table}." in answer.text
        found = await result(visitor, f'with "{table}" as (select 7 as a) from "{table}"')
        assert found["rows"] == [{"a": 7}]

    visit(shop.bootstrap_servers, walk)


@pytest.mark.wide
def test_row_of_a_result_is_bounded(shop, here):
    """The page never gets a line of its process that is as large as the memory."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get(f"/sql?q={quote(TOO_LARGE)}")
        assert "A row of the result has more than 16 MB." in answer.text

    visit(shop.bootstrap_servers, walk)


def test_conditions_leave_records_unread(shop, here):
    """The page says how many were read."""
    text = "select count(*) as n from orders where partition = 1 and offset >= 15"

    async def walk(visitor: Visitor) -> None:
        found = await result(visitor, text)
        assert (found["rows"], found["topics"][0]["read"]) == ([{"n": 5}], 5)

    visit(shop.bootstrap_servers, walk)


@pytest.mark.wide
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_statement_ends(shop, patient, text):
    """It is refused, or stopped at its limit; the console lives on."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get(f"/sql?q={quote(text)}")
        assert answer.status in (400, 404, 500)
        assert "root:" not in answer.text
        assert not visitor.app.cluster.limits.searches.locked()
        assert (await result(visitor, "select 1 as a"))["rows"] == [{"a": 1}]

    visit(shop.bootstrap_servers, walk)


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        ({"BIGINT", "NULL"}, "BIGINT"),
        ({"UBIGINT", "BIGINT", "NULL"}, "HUGEINT"),
        ({"UBIGINT", "DOUBLE"}, "DOUBLE"),
        ({"ARRAY", "OBJECT"}, "JSON"),
        ({"BOOLEAN"}, "BOOLEAN"),
        ({"BOOLEAN", "UBIGINT"}, "VARCHAR"),
        ({"NULL"}, "VARCHAR"),
        (set(), "VARCHAR"),
    ],
)
def test_field_has_the_type_of_all_its_values(kinds, kind):
    """Text where they are mixed, so that none is lost."""
    assert type_of(kinds) == kind


def test_values_are_plain():
    """As JSON has them; the rest is text."""
    at = datetime(2026, 11, 22, 13, 0, tzinfo=UTC)
    values = [1 << 70, 1.5, float("nan"), Decimal("1.10"), at, date(2026, 1, 2), b"\xff", None]
    assert list(map(cell, values)) == [
        1 << 70,
        1.5,
        "nan",
        "1.10",
        "2026-11-22T13:00:00.000+00:00",
        "2026-01-02",
        "\\xff",
        None,
    ]
    assert cell({"a": [timedelta(hours=3)], 1: (True,)}) == {"a": ["3:00:00"], "1": [True]}


@pytest.mark.parametrize("inner", [[1], {"a": 1}])
def test_value_that_is_nested_too_deep_is_refused(inner):
    """The pages are made of it by recursion, and lines of JSON with its indents are long."""

    def nested(levels: int) -> object:
        found: object = 1
        for _ in range(levels):
            found = {"a": found} if isinstance(inner, dict) else [found]
        return found

    assert cell(nested(64)) == nested(64)
    for levels in (65, 330, 900):
        with pytest.raises(Refused, match="nested deeper than 64 levels"):
            cell(nested(levels))
