"""The list of topics, and the search box."""

from __future__ import annotations

from visitor import Visitor, visit

from ottla import Producer
from ottla.console.row_window import WINDOW


def fill(broker) -> None:
    """Topics of which one has records."""
    broker.create_topic("orders", 3)
    broker.create_topic("users", 1, cleanup_policy="compact")
    broker.create_topic("Orders.dead", 1, retention_ms=3_600_000)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send("orders", b"%d" % number)


def test_list_has_the_facts_of_its_rows(ottla_fresh_broker):
    """The page and its JSON twin, from four requests beside the metadata."""
    fill(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/topics.json")).json
        orders = next(each for each in data["rows"] if each["name"] == "orders")
        assert (orders["partitions"], orders["replicas"], orders["records"]) == (3, 1, 5)
        assert orders["bytes"] > 0
        kept = {each["name"]: each["retention"] for each in data["rows"]}
        assert kept["users"] == "newest of each key"
        assert kept["Orders.dead"] == "1 hour"
        asked = [each["api"] for each in data["asked"]]
        assert sorted(set(asked)) == [
            *("DescribeConfigs", "DescribeLogDirs", "ListOffsets", "Metadata")
        ]
        page = (await visitor.get("/topics")).text
        assert '<a href="/t/orders/records">orders</a>' in page
        assert (await visitor.get("/topics", accept="application/json")).json["found"] == 3

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_list_is_filtered_and_sorted(ottla_fresh_broker):
    """In any case; by what is known of all topics."""
    fill(ottla_fresh_broker)

    async def names(visitor: Visitor, query: str) -> list[str]:
        data = (await visitor.get(f"/topics.json?{query}")).json
        return [each["name"] for each in data["rows"]]

    async def walk(visitor: Visitor) -> None:
        assert await names(visitor, "q=ORDERS") == ["Orders.dead", "orders"]
        assert await names(visitor, "sort=partitions") == ["orders", "Orders.dead", "users"]
        assert await names(visitor, "from=2") == ["users"]
        for wrong in ("sort=colour", "from=-1", "from=x", f"q={'a' * 300}"):
            assert (await visitor.get(f"/topics?{wrong}")).status == 400

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_list_comes_in_windows(ottla_fresh_broker):
    """Facts are asked for the rows of a window alone."""
    for number in range(WINDOW + 2):
        ottla_fresh_broker.create_topic(f"topic-{number:03}", 1)

    async def walk(visitor: Visitor) -> None:
        first = (await visitor.get("/topics.json")).json
        assert (len(first["rows"]), first["next"], first["previous"]) == (WINDOW, WINDOW, None)
        last = (await visitor.get(f"/topics.json?from={WINDOW}")).json
        assert (len(last["rows"]), last["next"], last["previous"]) == (2, None, 0)
        assert 'rel="next"' in (await visitor.get("/topics")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_search_box_finds_topics_and_near_names(ottla_fresh_broker):
    """A name that is not there creates nothing."""
    fill(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.get("/find.json?q=ord")).json["names"] == ["Orders.dead", "orders"]
        answer = await visitor.get("/find?q=oders")
        assert answer.status == 404
        assert '<a href="/t/orders/records">orders</a>' in answer.text

    before = ottla_fresh_broker.topics()
    visit(ottla_fresh_broker.bootstrap_servers, walk)
    assert ottla_fresh_broker.topics() == before
