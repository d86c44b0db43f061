"""The Python clients: `ottla.Producer`, `ottla.Consumer` and `ottla.Admin`.

Each client is an asyncio core (`network_client`, `metadata` and the modules above them) and a thin
synchronous API that runs the core in one I/O thread.
"""
