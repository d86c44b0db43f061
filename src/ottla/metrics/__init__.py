"""Sensors under Kafka's names, and the forms in which they are read."""
