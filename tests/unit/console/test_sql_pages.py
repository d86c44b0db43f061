"""SQL over topics: its rows, its cage, and what is hidden from it."""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sql_world import result
from users_of_console import at_login, logged_in, users_broker
from visitor import Visitor, visit

from ottla.console.masks import mask_of

BY_STATUS = (
    "select value.status, count(*) as n, sum(value.id) as ids from orders "
    "where timestamp > '2026-01-01' group by all order by n"
)
ROWS = [{"status": "error", "n": 15, "ids": 420}, {"status": "ok", "n": 45, "ids": 1350}]


def test_statement_runs_in_a_process_of_its_own(shop, patient):
    """The page has its rows, and how much it has read."""

    async def walk(visitor: Visitor) -> None:
        page = (await visitor.get(f"/sql?q={quote(BY_STATUS)}")).text
        assert "2 rows</b> over all 60 records of" in page
        assert '<td class="n">1350</td>' in page

    visit(shop.bootstrap_servers, walk)


@pytest.mark.parametrize(
    ("text", "shown"),
    [(BY_STATUS, "2 rows</b> over all 60 records of"), ("select 1 +", "syntax error")],
)
def test_page_finds_the_end_of_its_statement(shop, here, monkeypatch, text, shown):
    """It was followed by events, and is not run again for the page, also where it has failed."""

    async def walk(visitor: Visitor) -> None:
        events = (await visitor.get(f"/search/sql?q={quote(text)}")).text
        assert events.startswith('event: progress\ndata: {"read": 0, "total": 0}')
        assert ('data: {"total": 60, "read": 60}' in events) is (text == BY_STATUS)
        assert "event: done" in events
        with monkeypatch.context() as patch:
            patch.setattr("ottla.console.sql_pages.run_sql", None)
            assert shown in (await visitor.get(f"/sql?q={quote(text)}")).text
        assert shown in (await visitor.get(f"/sql?q={quote(text)}")).text

    visit(shop.bootstrap_servers, walk)


def test_events_of_no_statement_end_at_once(shop, here):
    """And those of a console that shows no record."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get(f"/search/sql?q={quote('' if is_there else BY_STATUS)}")
        assert answer.text.startswith("event: end")

    for is_there in (True, False):
        visit(shop.bootstrap_servers, walk, hide_records=not is_there)


def test_rows_are_taken_along(shop, here):
    """As JSON, CSV and Parquet, with their types."""

    async def walk(visitor: Visitor) -> None:
        found = await result(visitor, BY_STATUS)
        topic = {"topic": "orders", "read": 60, "total": 60, "is_whole": True, "errors": {}}
        assert (found["rows"], found["topics"]) == (ROWS, [topic])
        assert (await visitor.get(f"/sql.csv?q={quote(BY_STATUS)}")).text == (
            "status,n,ids\r\nerror,15,420\r\nok,45,1350\r\n"
        )
        file = (await visitor.get(f"/sql.parquet?q={quote(BY_STATUS)}")).body
        assert pq.read_table(io.BytesIO(file)).to_pylist() == ROWS
        assert '\\"orders\\"' in (await visitor.get("/sql.json")).text

    visit(shop.bootstrap_servers, walk)


TYPED = """select 'a' as s, 1.10::decimal(5, 2) as d, 'nan'::double as f, -1 as i, null::int as n,
  18446744073709551615::ubigint as u, 170141183460469231731687303715884105727 as h, true as b,
  timestamptz '2026-11-22 13:00:00.001+00' as t, date '2026-11-22' as day, [1] as l,
  timestamp '33658-09-27 01:46:40' as late"""


def test_parquet_has_the_types_of_a_statement(shop, here):
    """Also where there are no rows; what a type has no value for is text."""

    async def walk(visitor: Visitor) -> None:
        async def table(text: str) -> pa.Table:
            answer = await visitor.get(f"/sql.parquet?q={quote(text)}")
            return pq.read_table(io.BytesIO(answer.body))

        found = await table(TYPED)
        assert [f"{each.name} {each.type}" for each in found.schema] == [
            *("s string", "d decimal128(5, 2)", "f double", "i int64", "n int64", "u uint64"),
            *("h string", "b bool", "t timestamp[us, tz=UTC]", "day date32[day]", "l string"),
            "late string",
        ]
        (row,) = found.to_pylist()
        assert (row["d"], row["u"], row["l"]) == (Decimal("1.10"), 18446744073709551615, "[1]")
        assert row["t"] == datetime(2026, 11, 22, 13, 0, 0, 1000, UTC)
        assert math.isnan(row["f"])
        empty = await table(f"select s, t from ({TYPED}) where false")
        assert [str(each.type) for each in empty.schema] == ["string", "timestamp[us, tz=UTC]"]
        answer = await visitor.get(f"/sql.csv?q={quote('select 1 as a, 2 as b where false')}")
        assert answer.text == "a,b\r\n"

    visit(shop.bootstrap_servers, walk)


def test_masks_hold_and_hidden_records_have_no_page(shop, here):
    """Neither a condition nor a function sees a masked field."""
    text = "select value, value.id, headers from orders where value.id = '***' limit 1"

    async def walk(visitor: Visitor) -> None:
        found = await result(visitor, text)
        assert found["rows"][0]["id"] == "***"
        assert '"id": "***"' in found["rows"][0]["value"]
        assert found["rows"][0]["headers"] == [{"key": "trace", "value": "***"}]

    masks = (mask_of("orders:value.id"), mask_of("orders:headers.trace"))
    visit(shop.bootstrap_servers, walk, masks=masks)

    async def see_none(visitor: Visitor) -> list[int]:
        paths = ("/sql", "/sql.json?q=from+orders", "/sql.csv?q=from+orders")
        assert 'href="/sql"' not in (await visitor.get("/")).text
        return [(await visitor.get(each)).status for each in paths]

    assert visit(shop.bootstrap_servers, see_none, hide_records=True) == [404, 404, 404]


def test_mistakes_are_said_beside_the_statement(shop, here):
    """It stays in its field; the status is that of an error, and an export has no file."""

    async def walk(visitor: Visitor) -> None:
        for text, status, words in (
            ("select nope from orders", 400, "nope"),
            ("select 1 from ordrs", 404, "There is no topic ordrs"),
        ):
            answer = await visitor.get(f"/sql?q={quote(text)}")
            assert answer.status == status
            assert words in answer.text
            assert f"{text}</textarea>" in answer.text
        assert (await visitor.get("/sql.csv?q=selec")).status == 400
        assert (await visitor.get("/sql.csv")).status == 400

    visit(shop.bootstrap_servers, walk)


def test_users_read_with_their_own_rights(here):
    """A topic that a user may not see is none; where the user may not read it, the page says so."""
    text = quote('select count(*) as n from "alice-orders"')

    async def walk(visitor: Visitor) -> list[tuple[int, str]]:
        found = []
        for name in ("alice", "bob", "carol"):
            browser = await logged_in(visitor, name)
            answer = await browser.get(f"/sql?q={text}")
            found.append((answer.status, answer.text))
        return found

    with users_broker() as broker:
        alice, bob, carol = at_login(broker, walk)
    assert (alice[0], "over all 1 record of" in alice[1]) == (200, True)
    assert (bob[0], "There is no topic alice-orders" in bob[1]) == (404, True)
    assert "over the newest 0 of 1 records of" in carol[1]
    assert "Partition 0 of alice-orders could not be read: " in carol[1]
