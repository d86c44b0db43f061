"""Data pipelines on Spark: pure functions from DataFrame to DataFrame, a source and a sink."""
