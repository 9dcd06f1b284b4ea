"""A secret in transit: a password or token that no log, message or traceback can show by accident.

Whoever needs the bytes says so with `reveal`; everything that formats, compares or copies values for people sees three
stars. Comparing takes the same time wherever the first difference is.
"""

import hmac
from typing import NoReturn


class Secret:
    __slots__ = ("_bytes",)

    def __init__(self, secret: bytes) -> None:
        self._bytes = secret

    def reveal(self) -> bytes:
        return self._bytes

    def __bool__(self) -> bool:
        return bool(self._bytes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._bytes, other._bytes)

    __hash__ = None  # type: ignore[assignment]  # a hash would tell something of the secret

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret does not leave the process")
