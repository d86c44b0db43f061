"""Sockets: the processor that serves clients, and the channel to other brokers and servers."""
