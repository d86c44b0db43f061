"""The controller: which topics there are, who leads their partitions, and who is told about it."""
