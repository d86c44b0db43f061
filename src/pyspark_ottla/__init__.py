"""Found by Spark, which imports every package whose name begins with `pyspark_`.

An exception here would hide every other source that registers itself, so nothing heavy is imported.
"""

from __future__ import annotations

from ottla.spark import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]
