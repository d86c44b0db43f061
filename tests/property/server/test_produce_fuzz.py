"""Whatever is produced, offsets move by the records that were taken, and nothing raises."""

from __future__ import annotations

import logging

from produce_fuzzer import ProduceFuzzer


def test_produced_noise_is_answered_and_moves_no_offset(caplog):
    """Thousands of damaged batches and message sets; `make soak` sends a million."""
    caplog.set_level(logging.ERROR)
    fuzzer = ProduceFuzzer(seed=1)

    fuzzer.run(4_000)

    assert not caplog.records
    assert fuzzer.counts["NONE"] > 500
    assert fuzzer.counts["INVALID_RECORD"] > 1_000
    assert fuzzer.counts["CORRUPT_MESSAGE"] > 50
