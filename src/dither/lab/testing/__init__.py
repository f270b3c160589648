"""The contract suites of methods, mechanisms, models and stores, for plug-ins to pass.

    from dither.lab.testing import MethodContract

    class TestMine(MethodContract):
        name = "mine"

pytest then runs the whole suite on the method. The tests of the repository use the same
classes. Needs pytest.
"""

from importlib.util import find_spec

from dither.errors import InputError

if find_spec("pytest") is None:
    raise InputError(
        "dither.lab.testing needs pytest, which is not installed; run: pip install pytest"
    )

import pytest

# Before the suites are imported: pytest then shows the values of a failed assertion.
pytest.register_assert_rewrite("dither.lab.testing.contracts", "dither.lab.testing.stores")

from dither.lab.testing.contracts import (  # noqa: E402
    SCHEMA,
    MechanismContract,
    MethodContract,
    ModelContract,
)

__all__ = ["SCHEMA", "MechanismContract", "MethodContract", "ModelContract"]

# A store needs the extra `server`; the other contracts do not.
if find_spec("sqlalchemy") is not None:
    from dither.lab.testing.stores import StoreContract

    __all__ += ["StoreContract"]
