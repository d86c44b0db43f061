"""The rate of throttled replication over a window of samples."""

from __future__ import annotations

import pytest

from ottla.replication.replication_quota import ReplicationQuota
from ottla.testing import mock_runtime


@pytest.fixture
def runtime():
    return mock_runtime()


@pytest.fixture
def quota(runtime):
    """Broker 3, eleven samples of one second, 100 bytes a second."""
    quota = ReplicationQuota(runtime.clock, 3, 11, 1)
    quota.bytes_per_second = 100
    return quota


def test_quota_holds_from_the_first_second(quota, runtime):
    """One second's worth is allowed at once; more has to wait until the rate is what it may be."""
    runtime.advance(700)
    quota.record(100)
    assert not quota.is_exceeded
    quota.record(200)
    assert quota.is_exceeded
    runtime.advance(2_999)
    assert quota.is_exceeded
    runtime.advance(1)

    assert not quota.is_exceeded


def test_quota_forgets_what_has_left_the_window(quota, runtime):
    """However much it was: eleven seconds later it does not count."""
    quota.record(1_000_000)
    runtime.advance(10_000)
    assert quota.is_exceeded
    runtime.advance(1_000)

    assert not quota.is_exceeded


def test_quota_without_limit_counts_nothing(quota):
    """What was sent before a limit was set is not held against it."""
    quota.bytes_per_second = 2**63 - 1
    quota.record(10**9)
    quota.bytes_per_second = 100

    assert not quota.is_exceeded


@pytest.mark.parametrize(
    ("replicas", "applies"),
    [((), False), (("*",), True), (("0:3", "1:2"), True), (("0:2", "1:3"), False)],
)
def test_quota_applies_to_named_replicas(quota, replicas, applies):
    """A replica goes by partition and broker; * is all of them."""
    assert quota.applies(replicas, 0) is applies


def test_quota_without_a_setting_has_no_limit(runtime):
    """As in a cluster in which nobody moves anything."""
    quota = ReplicationQuota(runtime.clock, 3, 11, 1)
    quota.record(10**12)

    assert not quota.is_limited
    assert not quota.is_exceeded


def test_quota_forgets_each_second_by_itself(quota, runtime):
    """What came later does not keep what came first."""
    quota.record(1_000_000)
    runtime.advance(5_000)
    quota.record(100)
    runtime.advance(500)
    quota.record(100)
    runtime.advance(5_499)
    assert quota.is_exceeded
    runtime.advance(1)

    assert not quota.is_exceeded
