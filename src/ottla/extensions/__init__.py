"""Features of a broker, each in a folder that can be deleted: see `ottla.server.extension`."""
