"""`ottla cluster`: a whole cluster on one machine, for development."""
