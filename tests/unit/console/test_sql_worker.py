"""The cage of a statement, and the values that come out of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from urllib.parse import quote

import pytest
from sql_world import result
from visitor import Visitor, visit

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
        ({"UBIGINT", "BIGINT", "NULL"}, "BIGINT"),
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
