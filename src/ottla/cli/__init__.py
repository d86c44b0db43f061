"""The command line: `ottla <command>`, a class per command, in the words of Kafka's tools."""
