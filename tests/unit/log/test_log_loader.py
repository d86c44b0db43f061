"""Logs that are loaded at a start: read by few threads, synced by many."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest
from log_world import DIR, LogWorld, new_batch

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log import log_loader
from ottla.log.log_dir import LogDir
from ottla.log.log_loader import LogLoader
from ottla.runtime import real_runtime
from ottla.testing.waiting import wait_until_async


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


@pytest.mark.parametrize("step", ["load_log", "sync_recovered"])
@pytest.mark.parametrize("threads", [1, 2])
def test_start_that_is_cut_off_ends_behind_the_logs_at_hand(tmp_path, monkeypatch, step, threads):
    """A signal was heeded once all logs were recovered, which may take hours."""
    monkeypatch.setattr(log_loader, "SYNCS_AT_ONCE", threads)
    for partition in range(20):
        (tmp_path / f"topic-{partition}").mkdir()
    original, begun, go_on = getattr(log_loader, step), [], Event()

    def wait_in(item):
        begun.append(item)
        go_on.wait(60)
        return original(item)

    monkeypatch.setattr(log_loader, step, wait_in)

    async def cut_off():
        runtime = real_runtime(asyncio.get_running_loop())
        config = BrokerConfig.parse({"num.recovery.threads.per.data.dir": threads})
        log_dir = LogDir(runtime.disk, str(tmp_path))
        loader = LogLoader(runtime, config, lambda _: TopicConfig.of(config, {}))
        loading = asyncio.create_task(loader.load(log_dir))
        await wait_until_async(lambda: len(begun) == threads, "the first logs are being loaded")
        loading.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        await asyncio.wait((loading,))
        assert loading.cancelled()
        assert len(begun) == threads
        await runtime.close()

    asyncio.run(cut_off())
