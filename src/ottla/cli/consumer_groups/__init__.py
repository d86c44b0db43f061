"""`ottla consumer-groups`: a module per group of actions."""
