"""The contract suites that every method, mechanism, model and store passes, for those that other packages bring.

    from dither.lab.testing import MethodContract

    class TestMine(MethodContract):
        name = "mine"

and pytest runs the whole suite on it. The repository's own tests are the same classes. Needs pytest.
"""

from dither.lab.testing._rewriting import SUITES as SUITES
from dither.lab.testing.mechanisms import MechanismContract
from dither.lab.testing.methods import MethodContract
from dither.lab.testing.models import ModelContract
from dither.lab.testing.stores import StoreContract

__all__ = ["MechanismContract", "MethodContract", "ModelContract", "StoreContract"]
