"""`ottla pipeline`, and what `ottla demo` shares with it."""
