"""Changes of a database's rows, as a table that always holds the newest of each."""
