"""kill -9 of Spark drivers at any moment; `make soak` does it twenty times."""

from __future__ import annotations

import pytest
from breadth import examples
from driver_kills import copy_with_kills, count_with_kills


@pytest.mark.wide
@pytest.mark.spark
def test_copy_is_exact_although_its_driver_is_killed(start_broker, spark, tmp_path):
    """Once or twice, at moments of a seed; the last driver ends what the others began."""
    servers, kills = start_broker().bootstrap_servers, examples(2)

    killed = copy_with_kills(
        servers,
        tmp_path,
        records=4_000,
        per_batch=500,
        kills=kills,
        longest_s=1,
        seed=6,
        spark=spark,
    )

    assert killed == kills


@pytest.mark.spark
@pytest.mark.wide
def test_counts_are_exact_although_the_checkpoint_is_lost(start_broker, spark, tmp_path):
    """Killed twice; the folder is deleted the second time, and comes back from its changelog.

    The last run is that of another process, as on another machine.
    """
    servers = start_broker().bootstrap_servers

    killed = count_with_kills(servers, tmp_path, records=500, kills=2, longest_s=1, seed=7)

    assert killed == 2
