"""The Spark data source `ottla`: topics as DataFrames, with the schema of Spark's Kafka source."""

from __future__ import annotations

from ottla.spark.source import OttlaSource

__all__ = ["OttlaSource"]
