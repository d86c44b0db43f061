"""The Python clients: `ottla.Producer`, `ottla.Consumer` and `ottla.Admin`.

Each client is an asyncio core (`network_client`, `metadata` and what lies above them) and a thin
synchronous face that runs the core in one I/O thread.
"""
