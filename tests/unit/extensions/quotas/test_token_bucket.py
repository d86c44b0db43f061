"""Buckets of tokens that come in at a limit."""

from __future__ import annotations

from ottla.extensions.quotas.token_bucket import TokenBucket


def test_token_bucket_begins_full_and_may_go_below_zero():
    """11 windows x 2.5/s are 27.5 tokens; 40 taken leave -12.5, which take 5 s (KIP-599)."""
    bucket = TokenBucket(11, 1000)
    assert bucket.tokens(2.5, 100) == 27.5
    bucket.record(40, 2.5, 100)
    assert bucket.delay_ms(2.5, 100) == 5000
    assert bucket.delay_ms(2.5, 2100) == 3000
    assert bucket.delay_ms(2.5, 5100) == 0
    assert bucket.tokens(2.5, 60_000) == 27.5
