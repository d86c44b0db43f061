"""`ottla topics`: a module per action."""
