"""Lets these tests share `log_world` and `cleaner_world` with the unit tests of the log."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "log"))
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "log" / "cleaner"))
