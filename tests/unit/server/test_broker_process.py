"""The process of a broker serves until a signal, or until its disks are lost."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from types import SimpleNamespace

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.server import broker_process
from ottla.server.broker_process import serve
from ottla.testing import mock_runtime


class ServedBroker:
    """Stands for the broker of a process; a signal comes as soon as it is started."""

    is_fatal = False

    def __init__(self, config, runtime):
        self.log_dir_failures = SimpleNamespace(on_fatal=None, is_fatal=self.is_fatal)
        self.runtime, self.broker_id, self.end_points = runtime, 3, ["PLAINTEXT://h:1"]
        self.calls = []
        ServedBroker.last = self

    async def startup(self):
        self.runtime.clock.advance(250)
        self.calls.append("startup")
        if self.is_fatal:
            asyncio.get_running_loop().call_soon(self.log_dir_failures.on_fatal)
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    async def shutdown(self):
        self.calls.append("shutdown")


class WaitingBroker(ServedBroker):
    """Waits in its start for what never comes, when the signal does."""

    async def startup(self):
        await super().startup()
        try:
            await asyncio.Event().wait()
        finally:
            self.calls.append("given up")


@pytest.mark.parametrize("is_fatal", [False, True])
def test_signal_ends_a_start_that_waits(monkeypatch, capsys, is_fatal):
    """It was heeded once the start had ended: with no ZooKeeper there, after a minute or two."""
    monkeypatch.setattr(ServedBroker, "is_fatal", is_fatal)
    monkeypatch.setattr(broker_process, "Broker", WaitingBroker)
    runtime = mock_runtime()
    monkeypatch.setattr(broker_process, "real_runtime", lambda loop: runtime)
    status = asyncio.run(serve(BrokerConfig.parse({})))

    assert status == int(is_fatal)
    assert ServedBroker.last.calls == ["startup", "given up"]
    assert "ready" not in capsys.readouterr().out


@pytest.mark.parametrize("is_fatal", [False, True])
def test_process_serves_until_a_signal_or_the_loss_of_its_disks(monkeypatch, capsys, is_fatal):
    """The exit status says which; the line says where the broker is, and how long it took."""
    collected = []
    monkeypatch.setattr(ServedBroker, "is_fatal", is_fatal)
    monkeypatch.setattr(broker_process, "Broker", ServedBroker)
    runtime = mock_runtime()
    runtime.clock.advance(1_000)
    monkeypatch.setattr(broker_process, "real_runtime", lambda loop: runtime)
    monkeypatch.setattr(gc, "collect", lambda: collected.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: collected.append("freeze"))
    monkeypatch.setattr(gc, "callbacks", collected)
    status = asyncio.run(serve(BrokerConfig.parse({})))

    assert status == int(is_fatal)
    assert ServedBroker.last.calls == ["startup", "shutdown"]
    assert "broker 3 is ready at PLAINTEXT://h:1 (250 ms)" in capsys.readouterr().out
    assert collected[:2] == ["collect", "freeze"]
    assert collected[2].__name__ == "on_collection"
