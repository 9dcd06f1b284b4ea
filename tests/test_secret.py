"""A secret is shown to nobody who does not ask for it by name."""

import copy
import pickle
import traceback
from dataclasses import dataclass

import msgspec
import pytest

from overlane.secret import Secret


@dataclass
class Credentials:
    user: str
    password: Secret


def test_no_way_of_printing_shows_it() -> None:
    secret = Secret(b"sesame")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r}", "%s" % secret, repr(Credentials("alice", secret))]  # noqa: UP031
    assert not any("sesame" in text for text in shown)
    assert repr(Credentials("alice", secret)) == "Credentials(user='alice', password=Secret(***))"


def test_it_leaves_the_process_neither_pickled_nor_as_json() -> None:
    with pytest.raises(TypeError, match="does not leave the process"):
        pickle.dumps(Secret(b"sesame"))
    with pytest.raises(TypeError):
        msgspec.json.encode({"password": Secret(b"sesame")})
    with pytest.raises(TypeError):
        copy.copy(Secret(b"sesame"))


def test_no_traceback_shows_it_even_with_local_values() -> None:
    password = Secret(b"sesame")
    try:
        raise RuntimeError(f"no way with {password}")
    except RuntimeError as error:
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
    assert "password = Secret(***)" in "".join(told.format())
    assert not any("sesame" in line for line in told.format() if 'Secret(b"sesame")' not in line)


def test_it_is_what_was_put_in() -> None:
    assert Secret(b"sesame").reveal() == b"sesame"
    assert Secret(b"sesame") == Secret(b"sesame")
    assert Secret(b"sesame") != Secret(b"sesamE")
    assert Secret(b"sesame") != b"sesame"
    assert bool(Secret(b"x")) is True
    assert bool(Secret(b"")) is False
    with pytest.raises(TypeError):
        hash(Secret(b"sesame"))
