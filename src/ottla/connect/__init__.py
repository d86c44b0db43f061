"""Kafka Connect: connectors move records between Kafka and other systems.

Wing: attaches to the clients; brokers and clients know nothing of it.
"""
