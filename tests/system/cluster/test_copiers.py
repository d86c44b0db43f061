"""Exactly once on a cluster whose brokers and clients die; the long version is in tests/chaos."""

from __future__ import annotations

import pytest
from coordinator_places import OFFSETS, coordinator
from copiers import CopyJob

RECORDS = 5_000


@pytest.mark.wide
def test_copy_is_the_input_though_a_broker_and_a_copier_are_killed(cluster, view, unique):
    """The broker coordinates the group; nobody ever reads what is torn or aborted."""
    source = unique("copied")
    with CopyJob(view, source, partitions=3, size=250) as job:
        job.write(RECORDS // 2)
        job.until_copied(500)
        cluster.kill_broker(coordinator(view, OFFSETS, f"{source} copiers"))
        job.copiers[0].kill()
        job.write(RECORDS // 2)
        job.finish()
