"""Ottla: a Kafka-compatible streaming platform in Python."""

from ottla.version import __version__

__all__ = ["__version__"]
