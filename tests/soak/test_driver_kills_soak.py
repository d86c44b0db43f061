"""kill -9 of a Spark driver that copies 200,000 records, at twenty random moments."""

from __future__ import annotations

import os
import random

from driver_kills import copy_with_kills, count_with_kills

KILLS = int(os.environ.get("SOAK_KILLS", "20"))


def test_copy_is_exact_although_its_driver_is_killed_twenty_times(start_broker, java, tmp_path):
    """Wherever it is: planning, writing, deciding, committing, or noting that it has."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")

    killed = copy_with_kills(
        start_broker().bootstrap_servers,
        tmp_path,
        records=200_000,
        per_batch=2_000,
        kills=KILLS,
        longest_s=3,
        seed=seed,
    )

    assert killed > KILLS // 2, "the copy was through too early"


def test_counts_are_exact_although_their_checkpoint_is_lost(start_broker, java, tmp_path):
    """Twenty kills, and the folder with the state deleted after every other one."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")

    killed = count_with_kills(
        start_broker().bootstrap_servers,
        tmp_path,
        records=2_000,
        kills=KILLS,
        longest_s=3,
        seed=seed,
    )

    assert killed == KILLS
