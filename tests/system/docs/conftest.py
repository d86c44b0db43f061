"""Pages of the documentation, each held to what it says."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
