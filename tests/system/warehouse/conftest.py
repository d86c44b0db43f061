"""Makes what these tests share with those of the sink importable."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "spark_sink"):
    sys.path.insert(0, str(folder))
