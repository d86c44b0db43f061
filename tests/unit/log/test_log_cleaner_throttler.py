"""The bound on the disk traffic of compaction."""

from ottla.log.log_cleaner import RateLimit


def test_throttler_makes_up_for_what_was_moved():
    """A thousand bytes at a hundred a second take ten seconds."""
    assert RateLimit(100).delay_ms(1000, now_ms=5000) == 10_000


def test_throttler_counts_all_rounds_together():
    """The second one waits behind the first one."""
    limit = RateLimit(100)
    limit.delay_ms(1000, now_ms=0)

    assert limit.delay_ms(1000, now_ms=0) == 20_000


def test_time_that_passed_is_not_saved_up():
    """After an hour of nothing the bound is what it was."""
    limit = RateLimit(100)
    limit.delay_ms(1000, now_ms=0)

    assert limit.delay_ms(100, now_ms=3_600_000) == 1_000


def test_no_bound_means_no_delay():
    """The default is the largest double."""
    assert RateLimit(1.7976931348623157e308).delay_ms(1 << 40, now_ms=0) == 0
