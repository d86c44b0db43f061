"""Request handlers, one file per API family. Each class says in `apis()` what it serves."""
