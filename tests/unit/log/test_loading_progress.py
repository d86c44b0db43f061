"""The lines that tell how far the loading of a log directory is."""

from __future__ import annotations

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.loading_progress import LoadingProgress
from ottla.log.recovery import LogSource
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime


def test_progress_of_a_long_start_is_shown(caplog):
    """Every few seconds: how many logs are loaded, and how far those are that are checked."""
    caplog.set_level("INFO")
    runtime = mock_runtime()
    config = TopicConfig.of(BrokerConfig.parse({}), {})
    sources = [
        LogSource(runtime.disk, f"/data/topic-{p}", TopicPartition("topic", p), config, 0, 0)
        for p in range(3)
    ]
    progress = LoadingProgress(runtime, "/data", sources)
    sources[0].is_loaded = True
    sources[1].bytes_to_scan, sources[1].scanned_bytes = 900_000_000, 0
    runtime.advance(6000)
    sources[1].scanned_bytes = 450_000_000
    runtime.advance(6000)
    for source in sources:
        source.is_loaded = True
    progress.end()
    runtime.advance(60_000)

    assert caplog.messages == [
        "/data: 1 of 3 logs are loaded; topic-1: 0.0 of 900.0 MB are checked",
        "/data: 1 of 3 logs are loaded; topic-1: 450.0 of 900.0 MB are checked",
        "/data: 3 of 3 logs are loaded, after 12000 ms; 450.0 MB of records were checked",
    ]
