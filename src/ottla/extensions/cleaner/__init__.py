"""The cleaner (`log.cleaner.enable`): of a compacted log the last record of each key stays."""
