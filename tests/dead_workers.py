"""A worker that dies ends the run: pytest-xdist 3.8 would wait for ever for the tests that it had left."""

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    if error:
        gateway, config = (getattr(node, name) for name in ("gateway", "config"))
        session = config.pluginmanager.getplugin("dsession")
        session.shouldstop = f"worker {gateway.id} died: {error}"
