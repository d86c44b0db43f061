"""The coordinator of consumer groups: members, assignments and committed offsets."""
