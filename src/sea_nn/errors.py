"""The exceptions that this package raises on purpose, each also an ordinary Python error.

>>> try:
...     raise InputError("heatmaps must lie in [0, 1]")
... except ValueError as error:
...     print(error)
heatmaps must lie in [0, 1]
"""


class SEAError(Exception):
    """Base class: catch it to catch everything this package raises on purpose."""


class InputError(SEAError, ValueError):
    """A value was given that cannot be used; the message says which, why and what to do."""


class KindError(SEAError, TypeError):
    """Something of the wrong type was given."""


class MemberError(SEAError, RuntimeError):
    """A member of the ensemble could not explain this model or input."""


class UnfitError(MemberError):
    """A member is not made for this kind of model or input; a ready ensemble goes on without it."""


class MissingExtraError(SEAError, ImportError):
    """An optional package is needed; the message has the command that installs it."""


class AssumptionWarning(UserWarning):
    """Something was not said and has been assumed; the message has what, and how to say it."""
