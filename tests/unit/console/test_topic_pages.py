"""The parts of a topic beside its records."""

from __future__ import annotations

from topics_of_records import START, interleaved
from visitor import Visitor, visit


def test_partitions_have_leaders_offsets_and_sizes(ottla_fresh_broker):
    """And their share of all records."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/t/orders/partitions.json")).json
        assert [each["records"] for each in data["partitions"]] == [20, 20, 20]
        assert data["bytes"] > 0
        assert 'aria-current="page">Partitions' in (await visitor.get("/t/orders/partitions")).text

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
