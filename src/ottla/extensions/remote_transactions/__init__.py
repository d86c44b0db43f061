"""Transactions over several brokers (`zookeeper.connect`): markers and verifications."""
