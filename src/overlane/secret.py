"""A secret in memory: a password or token that no log, message or traceback shows by accident.

`reveal` returns the bytes; formatting, comparing or copying shows three stars. The time of a comparison does not depend
on the position of the first difference.
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
