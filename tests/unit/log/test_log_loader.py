"""Logs that are loaded at a start: read by few threads, synced by many."""

from __future__ import annotations

import pytest
from log_world import DIR, LogWorld, new_batch


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
