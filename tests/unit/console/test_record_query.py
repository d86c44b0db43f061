"""The query of a page of records: partitions, times, keys and cursors."""

from __future__ import annotations

import pytest
from topics_of_records import START, interleaved
from visitor import Visitor, visit

from ottla.console.page import Visit
from ottla.console.record_query import RecordQuery, cursor_of, cursor_text, record_query
from ottla.console.refusals import NotFound, Refused


async def query_of(visitor: Visitor, **query: str) -> RecordQuery:
    app = visitor.app
    return await record_query(Visit(app.cluster, app.settings, {"topic": "orders"}, query))


def spans(query: RecordQuery) -> dict[int, tuple[int, int]]:
    return {each.partition: tuple(span) for each, span in query.spans.items()}


def test_query_names_the_offsets_to_read(ottla_fresh_broker):
    """By partition, time, key, offset and cursor."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        whole = {0: (0, 20), 1: (0, 20), 2: (0, 20)}
        assert spans(await query_of(visitor)) == whole
        assert spans(await query_of(visitor, partition="1")) == {1: (0, 20)}
        late = await query_of(visitor, **{"from": str(START + 300), "to": str(START + 450)})
        assert spans(late) == {0: (10, 15), 1: (10, 15), 2: (10, 15)}
        assert late.total == 15
        assert spans(await query_of(visitor, **{"from": str(START + 10_000)}))[0] == (20, 20)
        key = await query_of(visitor, q="key = 'k1'")
        assert list(spans(key)) == [key.key_partition]
        assert len(spans(await query_of(visitor, q="key = 'k1'", all="1"))) == 3
        narrow = await query_of(visitor, q=f"offset > 4 and offset <= 9 and timestamp >= {START}")
        assert spans(narrow)[2] == (5, 10)
        assert spans(await query_of(visitor, q="partition = 2 and offset = 5")) == {2: (5, 6)}
        assert spans(await query_of(visitor, before="0:7,2:90")) == {0: (0, 7), 2: (0, 20)}

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_mistakes_are_refused(ottla_fresh_broker):
    """Each with the field."""
    interleaved(ottla_fresh_broker, 3)

    async def walk(visitor: Visitor) -> None:
        for query in ({"from": "soon"}, {"to": "never"}, {"before": "x"}, {"q": "a = "}):
            with pytest.raises(Refused):
                await query_of(visitor, **query)
        for name in ("from", "to", "before"):
            with pytest.raises(Refused, match=f"{name}=9"):
                await query_of(visitor, **{name: "9" * 5_000})
        for partition in ("9", "x", "9" * 5_000):
            with pytest.raises(NotFound):
                await query_of(visitor, partition=partition)

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_cursor_is_a_text():
    """Without positions it is empty."""
    assert cursor_of(cursor_text({1: 33, 0: 57})) == {0: 57, 1: 33}
    assert cursor_text({}) == ""
    with pytest.raises(Refused):
        cursor_of("0:" + "9" * 30)


def test_numbers_of_any_size_are_answered(ottla_fresh_broker):
    """With a sentence, and a status that says whose mistake it is."""
    interleaved(ottla_fresh_broker, 3)
    long = "9" * 5_000
    statuses = {
        f"/t/orders/records?count={long}": 400,
        f"/t/orders/records?partition={long}": 404,
        f"/t/orders/records?before=0:{long}": 400,
        f"/t/orders/timeline?from=0&to={'9' * 18}": 400,
        f"/t/orders/0/{long}": 404,
        f"/t/orders/{long}/0": 404,
        f"/t/orders/0/{1 << 63}": 404,
        f"/t/orders/0/{(1 << 59)}": 404,
        "/t/orders/records?q=timestamp+>+1e99999999": 400,
        "/t/orders/records?q=timestamp+>+1e300": 200,
        f"/t/orders/records?q=offset+>+{'9' * 60}": 200,
    }

    async def walk(visitor: Visitor) -> None:
        assert {each: (await visitor.get(each)).status for each in statuses} == statuses
        form = {"partition": long, "value": "v"}
        assert (await visitor.post("/t/orders/produce", **form)).status == 400

    visit(ottla_fresh_broker.bootstrap_servers, walk)
