"""Lets these tests share `replica_world` with the unit tests of replication."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "replication"))
