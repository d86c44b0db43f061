"""The table that a Parquet sink writes equals its topic, although its workers are killed."""

from __future__ import annotations

import pytest
from breadth import some
from sink_kills import SETTINGS, sink_through_kills


@pytest.mark.wide
@pytest.mark.ottla_settings(**SETTINGS)
@pytest.mark.parametrize("seed", some([1, 2]))
def test_table_equals_its_topic(ottla_fresh_broker, tmp_path, seed):
    """kill -9 three times, while files are written; `make soak` has 20 seeds."""
    sink_through_kills(ottla_fresh_broker, tmp_path, seed)
