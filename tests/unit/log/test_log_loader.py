"""The lines that tell how far the loading of a log directory is."""

from __future__ import annotations

import pytest
from log_world import DIR, LogWorld, new_batch

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.log_loader import LoadingProgress
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


@pytest.mark.parametrize(("is_clean", "synced"), [(False, 120), (True, 0)])
def test_recovered_logs_are_synced_many_at_once(monkeypatch, is_clean, synced):
    """A disk does that in the time of one; few threads read, as num.recovery.threads says."""
    world = LogWorld()
    for partition in range(40):
        world.log(partition).append_as_leader(
            memoryview(bytearray(new_batch(b"value"))), 0, now_ms=0
        )
    world.stop() if is_clean else world.kill()
    threads, files = [], []
    background = world.runtime.background
    run_at_once = background.run_at_once

    def count(jobs):
        threads.append(len(jobs))
        return run_at_once(jobs)

    def note(operation, path):
        if operation == "fsync" and "/topic-" in path and not path.endswith(".tmp"):
            files.append(path)

    monkeypatch.setattr(background, "run_at_once", count)
    world.disk.on_call = note
    world.start()

    assert threads == [2, 16]
    assert len(files) == synced


@pytest.mark.parametrize("operation", ["fsync", "replace", "fsync_dir"])
def test_log_that_cannot_be_synced_after_its_recovery_is_not_served(operation):
    """It would count as flushed; its log directory is offline instead."""
    world = LogWorld()
    world.append(b"value")
    world.kill()
    fault = world.disk.fail(operation, f"{DIR}/topic-0*")

    with pytest.raises(Exception, match="none can be used"):
        world.start()

    assert fault.times == 0
    assert world.manager.dirs[0].is_offline
