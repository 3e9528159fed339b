"""WrongUse: input that cannot be used. Everything else that goes wrong is somebody else's fault, or ours."""


class WrongUse(ValueError):
    """From the command line, a file, a token or a test; the message says what was expected and found."""
