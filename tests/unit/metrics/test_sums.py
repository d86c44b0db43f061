"""Sums as metrics."""

import pytest

from ottla.metrics.sums import summed


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_sum_pauses_after_some_items_and_has_them_all(count):
    """Those that were there when it began: what they are of may change in a pause."""
    items = dict.fromkeys(range(count))
    found = []
    for series in summed(items, lambda item: item + 1, at_once=2):
        items.clear()
        found.append(series)

    assert found == [None] * (count // 2) + [((), count * (count + 1) // 2)]
