"""A device needs Python and nothing else: no NumPy, no package from elsewhere."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
sys.path = [p for p in sys.path if "site-packages" not in p]
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "scipy", "numba", "pyarrow", "narwhals", "cryptography", "fastapi", "sqlalchemy"):
            raise ImportError(f"{name} is not on a device")
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
from dither.client import Device, Participant, code_of
from dither.reports import question
from dither.reports import codec, limits, plan
from dither.schema import Attribute, Schema
schema = Schema((Attribute("a", "boolean", (False, True)),))
for name in ("grr", "sue", "oue", "olh", "subset", "bloom"):
    q = question(schema, ["a"], 1.0, name)
    import secrets
    q.mechanism.check_report(q.mechanism.randomise(1, secrets.token_bytes))
print(Device(":memory:").spent("x"))
"""


def test_a_device_needs_the_standard_library_only() -> None:
    import dither

    folder = str(__import__("pathlib").Path(dither.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-S", "-c", CODE, folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0.0"
