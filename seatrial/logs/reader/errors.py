"""Errors before a log is judged.

NcclLogError        what was given is not a log: missing, empty, binary, a directory without logs; one line, for the
user
"""


class NcclLogError(ValueError):
    """The input cannot be read as a log.

    The message is one line that says which input, why, and what to give instead.
    """
