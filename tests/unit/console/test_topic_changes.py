"""Topics are created, deleted and set from the console."""

from __future__ import annotations

import pytest
from visitor import Visitor, visit

from ottla.console.refusals import Refused
from ottla.console.topic_changes import refusal, settings_of, topic_of
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import BROKER_DEFAULT


def test_topic_comes_and_goes(ottla_fresh_broker):
    """It goes only where its name was typed."""

    async def walk(visitor: Visitor) -> None:
        assert "Create the topic" in (await visitor.get("/topics/new")).text
        answer = await visitor.post(
            "/topics/new", name="orders", partitions="3", settings="retention.ms=5000"
        )
        assert answer.header("location") == "/t/orders/records"
        rows = (await visitor.get("/topics.json")).json["rows"]
        assert [(each["name"], each["partitions"]) for each in rows] == [("orders", 3)]
        assert (await visitor.post("/topics/new", name="orders")).status == 400
        assert (await visitor.post("/topics/new", name="or ders")).status == 400
        assert (await visitor.post("/t/orders/delete", name="order")).status == 400
        assert ottla_fresh_broker.topics() == ["orders"]
        answer = await visitor.post("/t/orders/delete", name="orders")
        assert answer.header("location") == "/topics"
        assert (await visitor.get("/topics.json")).json["rows"] == []

    visit(ottla_fresh_broker.bootstrap_servers, walk)
    assert ottla_fresh_broker.topics() == []


def test_setting_is_changed_and_taken_back(ottla_fresh_broker, caplog):
    """The line of audit has the value before."""
    ottla_fresh_broker.create_topic("orders", 1, retention_ms=5_000)
    caplog.set_level("INFO", "ottla.console.audit")

    async def value(visitor: Visitor) -> tuple[str, bool]:
        lines = (await visitor.get("/t/orders/settings.json")).json["settings"]
        found = next(each for each in lines if each["name"] == "retention.ms")
        return found["value"], found["is_own"]

    async def walk(visitor: Visitor) -> None:
        form = (await visitor.get("/t/orders/settings?edit=retention.ms")).text
        assert 'name="value" value="5000"' in form
        post = "/t/orders/settings"
        assert (await visitor.post(post, name="retention.ms", value="7000")).status == 303
        assert await value(visitor) == ("7000", True)
        assert (await visitor.post(post, name="retention.ms", reset="1")).status == 303
        assert await value(visitor) == ("604800000", False)
        assert (await visitor.post(post, name="retention.ms", value="soon")).status == 400
        assert (await visitor.post(post, name="colour", value="red")).status == 400

    visit(ottla_fresh_broker.bootstrap_servers, walk)
    first = next(each for each in caplog.records if "configs --alter" in each.getMessage())
    assert '"old": "5000", "new": "7000"' in first.getMessage()


def test_console_that_only_reads_has_no_form(ottla_fresh_broker):
    """Nor a button that leads to one."""
    ottla_fresh_broker.create_topic("orders", 1)

    async def walk(visitor: Visitor) -> None:
        for path in ("/topics", "/topics/new", "/t/orders/settings?edit=retention.ms"):
            page = (await visitor.get(path)).text
            assert page.count('method="post"') == 1  # that of the theme
            assert "New topic</a>" not in page

    visit(ottla_fresh_broker.bootstrap_servers, walk, read_only=True)


def test_fields_make_a_topic():
    """Empty numbers are the broker's."""
    topic = topic_of({"name": " a ", "settings": "x=1\n\n y = 2=3 "})
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (
        "a",
        BROKER_DEFAULT,
        BROKER_DEFAULT,
    )
    assert topic.configs == {"x": "1", "y": "2=3"}
    for fields in ({}, {"name": "a", "partitions": "0"}, {"name": "a", "replicas": "x"}):
        with pytest.raises(Refused):
            topic_of(fields)
    with pytest.raises(Refused):
        settings_of("nothing")


def test_errors_that_a_user_can_mend_are_refusals():
    """Others are those of the cluster."""
    wrong = KafkaError(ErrorCode.INVALID_PARTITIONS, "too many")
    gone = KafkaError(ErrorCode.NOT_CONTROLLER, "moved")

    assert isinstance(refusal(wrong), Refused)
    assert refusal(gone) is gone
