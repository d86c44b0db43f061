"""kill -9 of a driver that loads a topic into a table; `make soak` does it twenty times."""

from __future__ import annotations

import pytest
from breadth import examples
from load_kills import load_with_kills


@pytest.mark.wide
@pytest.mark.spark
def test_table_is_exact_although_its_driver_is_killed(start_broker, spark, tmp_path):
    """Once or twice, at moments of a seed; the last driver ends what the others began."""
    kills = examples(2)
    killed = load_with_kills(
        start_broker().bootstrap_servers,
        tmp_path,
        records=8_000,
        per_commit=200,
        kills=kills,
        longest_s=4,
        seed=10,
        spark=spark,
    )

    assert killed == kills
