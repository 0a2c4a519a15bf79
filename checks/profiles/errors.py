"""The profiles' error; a module of its own, since a command that may read a profile seldom does."""


class ProfileError(ValueError):
    """What the user wrote is not a profile; the message is one line."""
