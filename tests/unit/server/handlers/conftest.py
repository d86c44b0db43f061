"""Puts this folder and the tests of coordinator and record on the path, to share their worlds."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "coordinator"))
sys.path.insert(0, str(Path(__file__).parents[2] / "record"))
sys.path.insert(0, str(Path(__file__).parent))
