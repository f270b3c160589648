"""Every error Dither raises on purpose.

    DitherError
    ├── InputError            what the user gave is wrong; the command line exits with status 2
    │   ├── SchemaError       a schema file or an attribute definition
    │   ├── TableError        a table, a column or a value in it
    │   ├── ParameterError    an option or a method parameter
    │   │   └── QuestionError a question that a release of this kind cannot answer
    │   ├── PrivacyError      an epsilon that cannot be kept, or a guarantee that would be broken
    │   └── TooFewAnswers     a round whose answers the method cannot use; nothing was taken in, and more people mend it
    ├── ReportError           bytes that are not a report of the question they claim to answer
    └── StateError            a call out of order, such as closing a finished protocol

Each carries the offending object (`where`, `value`) beside a one-line message that says what to do.
"""

from __future__ import annotations


class DitherError(Exception):
    """Base of all errors raised on purpose; `str()` is one clear line.

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


class InputError(DitherError):
    """What the user gave is wrong and the user can mend it."""


class SchemaError(InputError):
    """A schema file or an attribute definition is wrong."""


class TableError(InputError):
    """A table, a column or a value does not fit the schema."""


class ParameterError(InputError):
    """An option or a method parameter is wrong."""


class QuestionError(ParameterError):
    """A release of this kind cannot answer the question; the message says which ones it can."""


class PrivacyError(InputError):
    """The guarantee that was asked for cannot be kept."""


class TooFewAnswers(InputError):
    """The answers of a round do not suffice for the method: nobody answered at all, or nobody about some attributes.

    Raised before the method has taken anything in, so that the round can stay open until more answers have come.
    """


class ReportError(DitherError):
    """Bytes that are not a report of the question they claim to answer."""


class StateError(DitherError):
    """A call out of order."""
