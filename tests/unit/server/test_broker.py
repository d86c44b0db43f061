"""What a broker process is set up with."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.server.broker import worker_count


@pytest.mark.parametrize(("dirs", "threads", "workers"), [(1, 1, 4), (3, 1, 4), (3, 8, 24)])
def test_every_recovery_thread_has_a_worker(dirs, threads, workers):
    """num.recovery.threads.per.data.dir of each log directory recover at once."""
    config = BrokerConfig.parse(
        {
            "log.dirs": ",".join(f"/data/{number}" for number in range(dirs)),
            "num.recovery.threads.per.data.dir": str(threads),
        }
    )

    assert worker_count(config) == workers
