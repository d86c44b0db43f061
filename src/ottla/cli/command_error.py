"""The errors that end a command with one line instead of a traceback."""


class CommandError(Exception):
    """The command cannot do what was asked; the text is the one line that the user sees."""


class UsageError(CommandError):
    """The options do not fit together; the user is also pointed to --help."""
