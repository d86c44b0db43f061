"""Buckets of tokens that come in at a limit."""

from __future__ import annotations

import pytest

from ottla.extensions.quotas.token_bucket import TokenBucket
from ottla.network.rate import MAX_DELAY_MS


def test_token_bucket_begins_full_and_may_go_below_zero():
    """11 windows x 2.5/s are 27.5 tokens; 40 taken leave -12.5, which take 5 s (KIP-599)."""
    bucket = TokenBucket(11, 1000)
    assert bucket.tokens(2.5, 100) == 27.5
    bucket.record(40, 2.5, 100)
    assert bucket.delay_ms(2.5, 100) == 5000
    assert bucket.delay_ms(2.5, 2100) == 3000
    assert bucket.delay_ms(2.5, 5100) == 0
    assert bucket.tokens(2.5, 60_000) == 27.5


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-9, 1e-3])
@pytest.mark.parametrize("amount", [1, 2**31, 2.0**63])
def test_delay_at_any_limit_has_room_in_an_answer(limit, amount):
    """One that was infinite cost the controller its epoch, within the event that asked for it."""
    bucket = TokenBucket(11, 1000)
    bucket.record(amount, limit, 0)

    assert 0 < bucket.delay_ms(limit, 0) <= MAX_DELAY_MS
    bucket = TokenBucket(11, 1000)
    bucket.record(amount, 1e308, 0)
    assert bucket.delay_ms(1e308, 0) == 0
