"""`ottla consumer-groups`: a module per action."""
