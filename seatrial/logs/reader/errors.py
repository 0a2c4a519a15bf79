"""Errors before a log is judged.

NcclLogError        the input is not a log: missing, empty, binary, a directory without logs; one line, for the user
"""


class NcclLogError(ValueError):
    """The input cannot be read as a log.

    The message is one line with the input, the reason, and a valid alternative.
    """
