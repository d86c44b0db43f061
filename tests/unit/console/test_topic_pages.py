"""The parts of a topic beside its records."""

from __future__ import annotations

from topics_of_records import START, interleaved
from visitor import Visitor, visit

from ottla.console import topic_pages


def test_partitions_have_leaders_offsets_and_sizes(ottla_fresh_broker):
    """And their share of all records."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/t/orders/partitions.json")).json
        assert [each["records"] for each in data["partitions"]] == [20, 20, 20]
        assert data["bytes"] > 0
        assert 'aria-current="page">Partitions' in (await visitor.get("/t/orders/partitions")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_sum_over_partitions_that_are_not_known_is_not_known(ottla_fresh_broker):
    """A total without them would be a wrong number; a timeline names those that it leaves out."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        fault = ottla_fresh_broker.faults.fail("ListOffsets", "UNKNOWN_SERVER_ERROR", times=1_000)
        data = (await visitor.get("/t/orders/partitions.json")).json
        assert (data["records"], data["bytes"] > 0) == (None, True)
        page = (await visitor.get("/t/orders/timeline")).text
        assert "Not counted: partition 0 (" in page
        errors = (await visitor.get("/t/orders/timeline.json")).json["errors"]
        assert list(errors) == ["0", "1", "2"]
        fault.clear()
        assert (await visitor.get("/t/orders/timeline.json")).json["errors"] == {}
        assert "Not counted" not in (await visitor.get("/t/orders/timeline")).text
        assert (await visitor.get("/t/orders/partitions.json")).json["records"] == 60

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_totals_are_of_all_partitions_also_of_those_not_shown(ottla_fresh_broker, monkeypatch):
    """The table ends after so many; the sums above it do not."""
    interleaved(ottla_fresh_broker)
    monkeypatch.setattr(topic_pages, "SHOWN_PARTITIONS", 2)

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/t/orders/partitions.json")).json
        assert (len(data["partitions"]), data["count"], data["records"]) == (2, 3, 60)
        assert data["partitions"][0]["share"] == 20 / 60
        assert "The first 2 of 3." in (await visitor.get("/t/orders/partitions")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_settings_of_the_topic_come_first(ottla_fresh_broker):
    """With the place that each value comes from."""
    ottla_fresh_broker.create_topic("orders", 1, retention_ms=5_000)

    async def walk(visitor: Visitor) -> None:
        first = (await visitor.get("/t/orders/settings.json")).json["settings"][0]
        assert (first["name"], first["value"], first["is_own"]) == ("retention.ms", "5000", True)
        assert "this topic" in (await visitor.get("/t/orders/settings")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_timeline_counts_records_without_reading_them(ottla_fresh_broker):
    """By look-ups of times alone."""
    interleaved(ottla_fresh_broker)
    query = f"from={START}&to={START + 600}"

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.get(f"/t/orders/timeline?from={START}&to={START + 10}")).status == 400
        data = (await visitor.get(f"/t/orders/timeline.json?from={START}&to={START + 6000}")).json
        assert (data["total"], data["counts"][:7], len(data["counts"])) == (60, [10] * 6 + [0], 60)
        assert {each["api"] for each in data["asked"]} == {"ListOffsets"}
        page = (await visitor.get(f"/t/orders/timeline?from={START}&to={START + 6000}")).text
        assert page.count('class="touch"') == 60
        assert query

    visit(ottla_fresh_broker.bootstrap_servers, walk)
