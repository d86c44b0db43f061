"""Six groups that are behind on a real broker, each for a reason that was planted: it leads."""

from __future__ import annotations

from lag_world import LagWorld

from ottla import Producer
from ottla.console.group_look import observations
from ottla.console.lag_causes import Cause, explain
from ottla.console.lag_evidence import with_evidence


def explained(world: LagWorld, group: str, *, meanwhile) -> list[Cause]:
    """The causes by two looks, with a minute and the work of the test between them."""
    first = world.look(group)
    meanwhile()
    world.pass_s(60)
    seen = observations([first, world.look(group)])
    return explain(world.run(with_evidence(world.cluster, seen)))


def test_reader_that_a_record_has_stopped(world):
    """The record is shown, with the reason why it cannot be read."""
    (poison,) = world.add_topic("poison")
    reader = world.read("poisoned", poison)
    world.write(poison, 10, b"{}")
    world.write(poison, 1, b'{"half":')
    world.write(poison, 5, b"{}")
    world.commit(reader, {poison: 10})
    cause, *_ = explained(world, "poisoned", meanwhile=lambda: world.write(poison, 5, b"{}"))

    assert cause.rule == "stopped"
    assert (cause.partition, cause.offset) == (poison, 10)
    assert "poisoned-reader has been at offset 10 of poison-0 for at least 1 min" in cause.sentence
    assert "no JSON: Expecting value: line 1 column 9" in cause.sentence


def test_reader_that_is_too_slow(world):
    """Rates of both sides, and the number of readers that would do."""
    slow = world.add_topic("slow", 4)
    reader = world.read("sluggish", *slow)
    for each in slow:
        world.write(each, 20)
    world.commit(reader, dict.fromkeys(slow, 5))

    def work() -> None:
        for each in slow:
            world.write(each, 90)
        world.commit(reader, dict.fromkeys(slow, 35))

    cause, *_ = explained(world, "sluggish", meanwhile=work)

    assert cause.rule == "too_slow"
    assert cause.numbers["readers_needed"] == 3
    assert "/s come; 3 readers would keep up, now there is 1" in cause.sentence


def test_group_that_nobody_is_in(world):
    """Its offsets are all that is left of it."""
    (left,) = world.add_topic("left")
    world.write(left, 10)
    world.admin.alter_group_offsets("deserted", {left: 3})
    cause, *_ = explained(world, "deserted", meanwhile=lambda: world.write(left, 5))

    assert cause.rule == "nobody_reads"
    assert "nobody reads: the group is Empty and has no members; 12 records wait" in cause.sentence


def test_reader_behind_an_open_transaction(world):
    """The transaction's producer and id are named."""
    (held,) = world.add_topic("held")
    world.write(held, 10)
    reader = world.read("waiting", held, isolation_level="read_committed")
    with Producer(world.servers, transactional_id="never-ends") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("held", b"open").result(30)
        world.write(held, 20)
        world.commit(reader, {held: 10})
        cause, *_ = explained(world, "waiting", meanwhile=lambda: world.write(held, 20))

    assert cause.rule == "open_transaction"
    assert cause.offset == 10
    assert "at offset 10 of held-0: 41 offsets behind it" in cause.sentence
    assert "(never-ends)" in cause.sentence


def test_reader_that_retention_has_overtaken(world):
    """The number of records that it will never read."""
    (old,) = world.add_topic("old")
    world.write(old, 30)
    reader = world.read("overtaken", old)
    world.commit(reader, {old: 4})
    cause, *_ = explained(
        world, "overtaken", meanwhile=lambda: world.admin.delete_records({old: 20})
    )

    assert cause.rule == "retention"
    assert cause.numbers["deleted"] == 16


def test_group_with_most_lag_in_one_partition(world):
    """The partition and its most frequent keys."""
    skewed = world.add_topic("skewed", 4)
    reader = world.read("lopsided", *skewed)
    for each in skewed:
        world.write(each, 10)
    world.commit(reader, dict.fromkeys(skewed, 10))

    def work() -> None:
        for each in skewed[1:]:
            world.write(each, 10)
        world.write(skewed[0], 200)
        world.commit(reader, dict.fromkeys(skewed, 20))

    cause, *others = explained(world, "lopsided", meanwhile=work)

    assert cause.rule == "skew"
    assert "skewed-0 has 100% of the lag (190 of 190)" in cause.sentence
    assert "most frequent keys there: k0 (105), k1 (105)" in cause.sentence
    assert [each.rule for each in others] == ["too_slow"]
