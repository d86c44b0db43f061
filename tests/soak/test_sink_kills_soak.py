"""A Parquet sink whose workers are killed: 20 seeds."""

from __future__ import annotations

import pytest
from sink_kills import SETTINGS, sink_through_kills


@pytest.mark.ottla_settings(**SETTINGS)
@pytest.mark.parametrize("seed", range(1, 21))
def test_table_equals_its_topic(ottla_fresh_broker, tmp_path, seed):
    """Three kills each; no row twice, and none missing."""
    sink_through_kills(ottla_fresh_broker, tmp_path, seed)
