"""Puts the unit tests' folder on the path, so that `group_world` can be shared."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "coordinator"))
