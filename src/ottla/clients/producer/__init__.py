"""`ottla.Producer`: packs records into batches and sends them to the partitions' leaders."""
