"""A watch over a broker: dead letters that come, and rules that are off or cannot be looked at."""

from __future__ import annotations

from types import SimpleNamespace

from lag_world import LagWorld

from ottla.console import alert_watch
from ottla.console.alert_rules import DiskSample
from ottla.console.alert_watch import AlertWatch
from ottla.console.lag_collector import LagCollector
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import replace


def test_dead_letters_fire_and_end(world: LagWorld):
    """Those that were there before the first look are no news."""
    (letters,) = world.add_topic("orders.dlq")
    world.write(letters, 2)
    watch = AlertWatch(world.cluster)
    world.run(watch.look())
    assert not [key for key in watch.book.firing if key[0] == "dead-letters"]

    world.write(letters, 3)
    world.run(watch.look())
    alert = watch.book.firing["dead-letters", "orders.dlq"]
    assert alert.text == "3 dead letters came into orders.dlq"
    assert alert.path == "/t/orders.dlq/records"
    for _ in range(2):
        world.pass_s(601)
        world.run(watch.look())
    assert [each.subject for each in watch.book.ended] == ["orders.dlq"]
    assert watch.failures == {}


def test_topic_that_is_gone_has_no_letters(world: LagWorld):
    """Nor one that was made again with fewer records."""
    (letters,) = world.add_topic("gone.dlq")
    watch = AlertWatch(world.cluster)
    world.run(watch.look())
    world.write(letters, 3)
    world.run(watch.look())
    world.admin.delete_topics(["gone.dlq"])
    world.run(world.cluster.changed())
    world.pass_s(60)
    world.run(watch.look())
    assert ("dead-letters", "gone.dlq") not in watch.book.firing


def test_lag_that_is_not_looked_at_decides_nothing(world: LagWorld):
    """While no broker answers the rules of groups say so, and their alerts stay as they are."""
    watch, collector = AlertWatch(world.cluster), world.cluster.part(LagCollector)
    collector.failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker answers")
    world.run(watch.look())
    assert watch.failures == dict.fromkeys(("behind", "stuck"), "no broker answers")
    collector.failure = None
    world.run(watch.look())
    assert watch.failures == {}


def test_rule_may_be_off_and_disks_are_seen(world: LagWorld, monkeypatch):
    """The limit of a rule is that of the command line."""
    settings = replace(world.cluster.settings, alerts={"disk": -1, "behind": 7})
    monkeypatch.setattr(world.cluster, "settings", settings)
    watch = AlertWatch(world.cluster)
    assert (watch.limits["behind"], watch.limits["stuck"]) == (7, 240)
    seen = []
    note = lambda volumes, limit: seen.append(volumes) or []  # noqa: E731 - one of a test
    monkeypatch.setattr(alert_watch.rules, "disk", note)
    world.run(watch.look())
    assert seen == []
    monkeypatch.setattr(world.cluster, "settings", replace(settings, alerts={}))
    world.run(watch.look())
    ((sample,),) = seen[0].values()
    assert isinstance(sample, DiskSample)
    assert 0 < sample.usable <= sample.total


def test_oldest_session_of_a_user_reports(world: LagWorld, caplog):
    """The others of the user see the alert; the next one reports after the first one has ended."""
    (letters,) = world.add_topic("twice.dlq")
    others = world.cluster.limits.collecting
    others += [SimpleNamespace(user="bob"), SimpleNamespace(user=""), world.cluster]
    watch = AlertWatch(world.cluster)
    world.run(watch.look())
    world.write(letters, 1)
    world.run(watch.look())
    assert ("dead-letters", "twice.dlq") in watch.book.firing
    assert "twice.dlq" not in caplog.text
    del others[:2]
    for _ in range(2):
        world.pass_s(601)
        world.run(watch.look())
    others.clear()
    assert "alert dead-letters has ended: 1 dead letter came into twice.dlq" in caplog.text
