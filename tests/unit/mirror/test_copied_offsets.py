"""How far partitions were copied, in a topic to which others may write as well."""

from __future__ import annotations

import pytest

from ottla import Producer, TopicPartition
from ottla.mirror.copied_offsets import CopiedTo, key_of, partition_of, read_offsets
from ottla.mirror.flow import MirrorCluster
from ottla.runtime import SystemClock

PAGES, CLICKS = TopicPartition("pages", 0), TopicPartition("clicks", 1)
DEEP = b"[" * 50_000
NO_KEYS = (
    b"",
    b"x",
    b"\xff",
    b"[]",
    b"{}",
    b'["MirrorSourceConnector"]',
    DEEP,
    b"null",
    b"1",
    None,
)
ODD = (
    b'["MirrorSourceConnector",{"cluster":"a","topic":["pages"],"partition":0}]',
    b'["MirrorSourceConnector",{"cluster":"a","topic":"pages","partition":"0"}]',
    b'["MirrorSourceConnector",{"cluster":"a","topic":"pages"}]',
    b'["MirrorSourceConnector",5]',
)


@pytest.mark.parametrize("key", [*NO_KEYS, *ODD], ids=lambda key: repr(key)[:40])
def test_key_of_somebody_else_is_about_no_partition(key):
    """Also one that begins as ours do."""
    assert partition_of(key, "a") is None
    assert partition_of(key_of("a", PAGES), "a") == PAGES


@pytest.mark.parametrize(
    "garbage", [b"", b"x", b"\xff", b"{", DEEP], ids=lambda each: repr(each)[:20]
)
def test_what_is_no_offset_holds_no_flow_up(ottla_fresh_broker, garbage, caplog):
    """It is passed over, under any key; the offset before it counts."""
    with Producer(ottla_fresh_broker.bootstrap_servers) as producer:
        for key, value in (
            (key_of("a", PAGES), CopiedTo(29).value()),
            (key_of("a", CLICKS), CopiedTo(3).value()),
            (b"of another", garbage),
            (key_of("b", PAGES), garbage),
            (key_of("a", PAGES), garbage),
            (key_of("a", CLICKS), None),
        ):
            producer.send("offsets", value, key=key).result(10)
    cluster = MirrorCluster(
        "b", {"consumer": {"bootstrap.servers": ottla_fresh_broker.bootstrap_servers}}
    )

    assert read_offsets(cluster, "offsets", "a", SystemClock()) == {PAGES: CopiedTo(29)}
    assert sum("is no offset" in each for each in caplog.messages) == 1
