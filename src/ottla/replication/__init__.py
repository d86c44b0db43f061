"""Replication: the logs of partitions, their leaders, and the requests that wait for them."""
