"""Apache Qpid Proton as a client: of PyPI (python-qpid-proton), or of the system (Debian: python3-qpid-proton)."""

import sys
from importlib import import_module
from types import ModuleType

import pytest

SYSTEM = "/usr/lib/python3/dist-packages"


def proton(module: str = "proton") -> ModuleType:
    """The module, or the test is left out."""
    try:
        return import_module(module)
    except ImportError:
        # Behind all others, so that nothing else of the system takes the place of what is installed here.
        sys.path.append(SYSTEM)
        try:
            return import_module(module)
        except ImportError:
            pytest.skip("Qpid Proton for Python is missing", allow_module_level=True)
        finally:
            sys.path.remove(SYSTEM)
