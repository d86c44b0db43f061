"""Data pipelines on Spark: pure functions from DataFrame to DataFrame between a source and a sink."""
