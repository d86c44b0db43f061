"""Puts this folder and the coordinator's tests on the path, so that their worlds can be shared."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "coordinator"))
sys.path.insert(0, str(Path(__file__).parent))
