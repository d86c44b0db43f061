"""`ottla dump-log`: what the files of a partition hold, a module per kind of file."""
