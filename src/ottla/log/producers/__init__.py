"""The producers of a partition, as its log knows them: what makes a retry harmless."""
