"""The errors that Dither raises on purpose.

    DitherError
    ├── InputError            wrong input from the user; the command line exits with status 2
    │   ├── SchemaError       a schema file or an attribute definition
    │   ├── TableError        a table, a column or a value in it
    │   ├── ParameterError    an option or a method parameter
    │   │   └── QuestionError a question that a release of this kind cannot answer
    │   ├── PrivacyError      an epsilon that cannot be kept, or a guarantee at risk
    │   └── TooFewAnswers     too few answers for the method; the round can stay open
    ├── ReportError           bytes that are not a report of the question they name
    ├── StateError            a call out of order, such as closing a finished protocol
    └── Unreachable           no answer from a collector (dither.client)

`DitherWarning` is the class of Python warnings about a result that is less than was asked for.

Each error has the offending object in `where` and `value`, and a one-line message that says
what to do.
"""

from __future__ import annotations


class DitherError(Exception):
    """Base of all errors raised on purpose; `str()` is one line.

    >>> import dither
    >>> try:
    ...     dither.publish("adult", epsilon=-1.0)
    ... except dither.DitherError as error:
    ...     print(error)
    epsilon must be a number above 0, not -1.0
    """

    def __init__(self, message: str, *, where: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.where = where
        self.value = value


class DitherWarning(UserWarning):
    """A result is less than was asked for, such as a fit that fell back to independence.

    The sentence is in the release's `warnings` too.

    >>> import warnings, dither
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", dither.DitherWarning)
    ...     release = dither.publish("adult", epsilon=4.0, method="independent", rows=10)
    """


class InputError(DitherError):
    """The input is wrong, and the user can correct it."""


class SchemaError(InputError):
    """A schema file or an attribute definition is wrong."""


class TableError(InputError):
    """A table, a column or a value does not fit the schema."""


class ParameterError(InputError):
    """An option or a method parameter is wrong."""


class QuestionError(ParameterError):
    """A release of this kind cannot answer the question; the message says which ones it can."""


class PrivacyError(InputError):
    """The requested guarantee cannot be kept."""


class TooFewAnswers(InputError):
    """A round has too few answers for the method, in total or about some attributes.

    It is raised before the method uses any answer, so the round can stay open.
    """


class ReportError(DitherError):
    """Bytes that are not a report of the question they name."""


class StateError(DitherError):
    """A call out of order."""
