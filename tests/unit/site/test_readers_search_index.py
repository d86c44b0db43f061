"""A search index whose offsets are in its segments."""

from __future__ import annotations

import json

import pytest

from ottla import Producer
from ottla.site.readers import SearchIndex
from ottla.testing import wait_until

TOPIC = "posts"


@pytest.fixture
def posts(ottla_fresh_broker):
    """A broker with a topic of posts, and a function that publishes some."""
    ottla_fresh_broker.create_topic(TOPIC, partitions=2)

    def publish(*numbers: int) -> None:
        with Producer(ottla_fresh_broker.bootstrap_servers) as producer:
            for number in numbers:
                post = {"actor": "ann", "verb": "posted", "object": f"photo {number}"}
                producer.send(TOPIC, json.dumps(post), partition=number % 2)

    publish.servers = ottla_fresh_broker.bootstrap_servers
    return publish


def found(index: SearchIndex) -> list[str]:
    return sorted(document.text for document in index.search("photo"))


def test_u15_crash_loses_what_was_not_flushed_and_its_offsets(posts, tmp_path):
    """After a crash the index reads on from its last segment: each post is there once."""
    posts(*range(6))
    index = SearchIndex(posts.servers, TOPIC, tmp_path, documents=1000, seconds=0)
    wait_until(lambda: index.record_count == 6, "a segment", meanwhile=index.step)
    index.close()

    index = SearchIndex(posts.servers, TOPIC, tmp_path, documents=1000, seconds=1e9)
    posts(*range(6, 10))
    wait_until(lambda: len(index._fresh) == 4, "posts in memory", meanwhile=index.step)
    assert index.record_count == 6
    assert sum(index.next_offsets.values()) == 6
    index.abandon()

    index = SearchIndex(posts.servers, TOPIC, tmp_path, documents=4, seconds=1e9)
    assert sum(index.next_offsets.values()) == 6
    wait_until(lambda: index.record_count == 10, "the posts again", meanwhile=index.step)
    assert found(index) == [f"posted photo {number}" for number in range(10)]
    assert sum(index.next_offsets.values()) == 10
    index.close()


def test_half_written_segment_does_not_count(posts, tmp_path):
    """A segment gets its name when it is whole."""
    posts(1)
    (tmp_path / "segment-000001.part").write_text('{"next_offsets": {"0": 5}, "docu')
    index = SearchIndex(posts.servers, TOPIC, tmp_path, documents=1)
    wait_until(lambda: index.record_count == 1, "the post", meanwhile=index.step)

    assert found(index) == ["posted photo 1"]
    index.close()


def test_search_wants_all_words(posts, tmp_path):
    """In any order and case; a word that is nowhere finds nothing."""
    posts(1, 2)
    with_both = SearchIndex(posts.servers, TOPIC, tmp_path, documents=1)
    wait_until(lambda: with_both.record_count == 2, "both posts", meanwhile=with_both.step)

    assert [each.text for each in with_both.search("2 POSTED")] == ["posted photo 2"]
    assert not list(with_both.search("photo nowhere"))
    assert not list(with_both.search(""))
    with_both.close()
