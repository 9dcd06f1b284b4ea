"""Hashes of passwords: those that Overlane makes, and those of Mosquitto's password files.

    $argon2id$v=19$m=19456,t=2,p=1$SALT$HASH   what `overlane passwd` writes
    $7$ITERATIONS$SALT$HASH                    mosquitto_passwd: PBKDF2 with HMAC-SHA512
    $6$SALT$HASH                               older mosquitto_passwd: SHA512 of password and salt

The latter two are weaker: anyone who gets the file can try many passwords a second.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from overlane.errors import Unavailable
from overlane.secret import Secret

if TYPE_CHECKING:
    from argon2 import PasswordHasher

MEMORY_KIB_MAX = 2**20
TIME_COST_MAX = 64
LANES_MAX = 16
ITERATIONS_MAX = 2_000_000
SALT_BYTES = 12
"""As mosquitto_passwd makes it."""

_ARGON2 = re.compile(
    r"\$argon2id\$v=19\$m=([0-9]{1,8}),t=([0-9]{1,8}),p=([0-9]{1,8})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{16,86}"
)
_MOSQUITTO = re.compile(
    r"\$(6|7\$(?P<iterations>[0-9]{1,7}))\$(?P<salt>[A-Za-z0-9+/=]{4,120})\$(?P<hash>[A-Za-z0-9+/=]{88})"
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one check of an argon2id hash costs. One lane is one thread: a check never takes more than one processor."""

    memory_kib: int = 19_456
    times: int = 2
    lanes: int = 1

    def hasher(self) -> "PasswordHasher":
        from argon2 import PasswordHasher  # a broker without users does without it

        return PasswordHasher(time_cost=self.times, memory_cost=self.memory_kib, parallelism=self.lanes)


def fault_of(hashed: str) -> str:
    """What is wrong with a hash; empty if it can be used."""
    if (found := _ARGON2.fullmatch(hashed)) is not None:
        cost = _cost(found)
        if not (1 <= cost.lanes <= LANES_MAX and 1 <= cost.times <= TIME_COST_MAX):
            return f"with a hash that costs {cost.times} times and {cost.lanes} lanes"
        if not 8 * cost.lanes <= cost.memory_kib <= MEMORY_KIB_MAX:
            return f"with a hash that costs {cost.memory_kib} KiB of memory"
        return ""
    if (found := _MOSQUITTO.fullmatch(hashed)) is not None:
        try:
            base64.b64decode(found["salt"], validate=True)
            base64.b64decode(found["hash"], validate=True)
        except binascii.Error:
            return "without a hash that is known"
        iterations = found["iterations"]
        if iterations is not None and not 1 <= int(iterations) <= ITERATIONS_MAX:
            return f"with a hash that costs {iterations} iterations"
        return ""
    return "without a hash that is known"


def is_password(hashed: str, password: Secret) -> bool:
    """Whether the hash is that of the password. Takes long on purpose; Unavailable where there is no memory for it."""
    if (found := _MOSQUITTO.fullmatch(hashed)) is not None:
        return hmac.compare_digest(_mosquitto(found, password.reveal()), base64.b64decode(found["hash"]))
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

    try:
        return PasswordHasher().verify(hashed, password.reveal())
    except VerifyMismatchError:
        return False
    except (VerificationError, InvalidHashError) as failed:
        raise Unavailable("the check of a password", str(failed)) from None


def decoy(hashes: Iterable[str]) -> str:
    """A hash that belongs to no password. To check it costs what it costs for most of these."""
    password = secrets.token_bytes(32)
    kinds = Counter(_kind(hashed) for hashed in hashes)
    usual = kinds.most_common(1)[0][0] if kinds else Cost()
    if isinstance(usual, Cost):
        return usual.hasher().hash(password)
    made = f"${usual}${base64.b64encode(secrets.token_bytes(SALT_BYTES)).decode()}$" + "A" * 86 + "=="
    found = _MOSQUITTO.fullmatch(made)
    assert found is not None
    return made[: -len(found["hash"])] + base64.b64encode(_mosquitto(found, password)).decode()


def _kind(hashed: str) -> Cost | str:
    """What its check costs: of argon2id, or the scheme of Mosquitto with its iterations."""
    if (found := _ARGON2.fullmatch(hashed)) is not None:
        return _cost(found)
    found = _MOSQUITTO.fullmatch(hashed)
    return found[1] if found is not None else Cost()


def _mosquitto(found: re.Match[str], password: bytes) -> bytes:
    salt = base64.b64decode(found["salt"])
    if found["iterations"] is None:
        return hashlib.sha512(password + salt).digest()
    return hashlib.pbkdf2_hmac("sha512", password, salt, int(found["iterations"]))


def _cost(found: re.Match[str]) -> Cost:
    return Cost(*(int(number) for number in found.groups()))
