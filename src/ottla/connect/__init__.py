"""Kafka Connect: connectors move records between Kafka and other systems."""
