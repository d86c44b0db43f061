"""Moves: partitions to other brokers (KIP-455), and replicas to other log directories (KIP-113)."""
