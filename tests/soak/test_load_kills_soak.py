"""kill -9 of a driver that loads 200,000 records into a table, at twenty random moments."""

from __future__ import annotations

import os
import random

import pytest
from load_kills import load_with_kills

KILLS = int(os.environ.get("SOAK_KILLS", "20"))


@pytest.mark.parametrize("kind", ["delta", "parquet", "stream"])
def test_table_is_exact_although_its_driver_is_killed_twenty_times(
    start_broker, java, tmp_path, kind
):
    """Wherever it is: planning, writing files, committing, or showing what it has committed."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")

    killed = load_with_kills(
        start_broker().bootstrap_servers,
        tmp_path,
        records=200_000,
        per_commit=2_000,
        kills=KILLS,
        longest_s=6,
        seed=seed,
        kind=kind,
    )

    assert killed > KILLS // 2, "the load was through too early"
