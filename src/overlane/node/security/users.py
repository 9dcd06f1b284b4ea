"""The users file: users that can log in with a password, or with a key.

    # the name, a colon, and the argon2id hash of the password: one line per user
    alice:$argon2id$v=19$m=19456,t=2,p=1$...$...
    # the name, and the public NKey of a NATS client: any number of lines
    alice:nkey:UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4

`overlane passwd` writes it. Empty lines and lines that begin with `#` are kept. A file with any error is rejected as a
whole; the error gives the line number but not its content, which may be a password.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from overlane.errors import ConfigError, Fault, OverlaneError, Unavailable
from overlane.node.security.nkeys import public_key
from overlane.pubsub.access import ANONYMOUS, ANY_USER
from overlane.secret import Secret
from overlane.secret_file import read_secret_file, rewrite_secret_file

NAME_BYTES_MAX = 256
PASSWORD_BYTES_MAX = 1_024
"""So that name and password fit into the CONNECT that a client may send before it is known."""

MEMORY_KIB_MAX = 2**20
TIME_COST_MAX = 64
LANES_MAX = 16

NKEY = "nkey:"

_ENTRY = "NAME:HASH with an argon2id hash, or NAME:nkey:KEY with a public key, as `overlane passwd` writes them"
_HASH = re.compile(
    r"\$argon2id\$v=19\$m=([0-9]{1,8}),t=([0-9]{1,8}),p=([0-9]{1,8})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{16,86}"
)


class BadName(OverlaneError, ValueError):
    """A name that no user can have."""

    error_code = "OVL-111"


class BadPassword(OverlaneError, ValueError):
    """A password with which no login is possible."""

    error_code = "OVL-112"


class BadKey(OverlaneError, ValueError):
    """A key that is no public NKey of a user."""

    error_code = "OVL-123"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one check of a password costs. One lane is one thread: a check never takes more than one processor."""

    memory_kib: int = 19_456
    times: int = 2
    lanes: int = 1

    def hasher(self) -> PasswordHasher:
        return PasswordHasher(time_cost=self.times, memory_cost=self.memory_kib, parallelism=self.lanes)


@dataclass(frozen=True, slots=True)
class Users:
    """The users of one file, the hashes of their passwords, and whose NKeys are known."""

    hashes: dict[str, str] = field(default_factory=dict, repr=False)
    nkeys: dict[str, str] = field(default_factory=dict)
    """Users by public key."""

    def __contains__(self, name: object) -> bool:
        return name in self.hashes or name in self.nkeys.values()

    def __len__(self) -> int:
        return len(self.names())

    def names(self) -> list[str]:
        return sorted({*self.hashes, *self.nkeys.values()})

    def usual_cost(self) -> Cost:
        """What it costs to check the password of most users."""
        costs = Counter(_cost(found) for found in map(_HASH.fullmatch, self.hashes.values()) if found is not None)
        return costs.most_common(1)[0][0] if costs else Cost()


def read_users(path: str | Path) -> Users:
    """The users in a file; ConfigError with everything that is wrong in it."""
    content = read_secret_file(path, "a users file, as `overlane passwd` writes it")
    hashes: dict[str, str] = {}
    nkeys: dict[str, str] = {}
    faults = []
    for number, line in _entries(content):
        name, value, found = _entry(line)
        is_key = value.startswith(NKEY)
        if not found and not is_key and name in hashes:
            found = f"user {name} a second time"
        if not found and is_key and value in nkeys:
            found = f"a key of user {name} a second time"
        if found:
            faults.append(Fault(str(path), number, "", found, _ENTRY))
        elif is_key:
            nkeys[value] = name
        else:
            hashes[name] = value
    if faults:
        raise ConfigError(faults)
    return Users(hashes, {value.removeprefix(NKEY): name for value, name in nkeys.items()})


def set_password(path: str | Path, name: str, password: Secret, cost: Cost | None = None) -> bool:
    """Give a user a password, in a new file where there is none. True if the user is new."""
    check_name(name)
    if not password or len(password.reveal()) > PASSWORD_BYTES_MAX:
        raise BadPassword(f"{len(password.reveal())} bytes, allowed are 1 to {PASSWORD_BYTES_MAX}")
    entry = f"{name}:{(cost or Cost()).hasher().hash(password.reveal())}".encode()
    return not _rewrite(path, f"{name}:$", [entry])


def add_nkey(path: str | Path, name: str, nkey: str) -> bool:
    """Let a user log in with a key, besides what it has. True if the user did not have this key."""
    check_name(name)
    if public_key(nkey) is None:
        raise BadKey("not the public NKey of a user: `U` and 55 more characters, as `nk -pubout` prints it")
    entry = f"{name}:{NKEY}{nkey}"
    return not _rewrite(path, entry, [entry.encode()])


def remove_user(path: str | Path, name: str) -> bool:
    """With all keys. True if there was such a user."""
    return _rewrite(path, f"{name}:", [])


def is_password(hashed: str, password: Secret) -> bool:
    """Whether the hash is that of the password. Takes long on purpose; Unavailable where there is no memory for it."""
    try:
        return PasswordHasher().verify(hashed, password.reveal())
    except VerifyMismatchError:
        return False
    except (VerificationError, InvalidHashError) as failed:
        raise Unavailable("the check of a password", str(failed)) from None


def check_name(name: str) -> None:
    """BadName if no user can be called so."""
    if not name:
        raise BadName("the name is empty")
    if len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        raise BadName(f"the name is longer than {NAME_BYTES_MAX} bytes")
    if ":" in name:
        raise BadName("the name has a `:`, which ends the name in the file")
    if not name.isprintable():
        raise BadName("the name has a character that cannot be printed")
    if name != name.strip() or name.startswith("#"):
        raise BadName("the name begins with `#` or a blank, or ends with a blank")
    if name in (ANY_USER, ANONYMOUS):
        raise BadName(f"`{name}` has a meaning of its own in access rules")


def _rewrite(path: str | Path, start: str, entry: list[bytes]) -> bool:
    """Put the entry in the place of lines that begin like this, or at the end. True if there were any; the file is
    refused if wrong."""
    was_there = False

    def change(old: bytes | None) -> bytes:
        nonlocal was_there
        lines = [] if old is None else old.splitlines()
        if old is not None:
            read_users(path)
        places = [number for number, line in enumerate(lines) if line.strip().startswith(start.encode())]
        was_there = bool(places)
        if entry and places:
            lines[places[0] : places[0] + 1] = entry
        elif entry:
            lines.extend(entry)
        else:
            lines = [line for number, line in enumerate(lines) if number not in places]
        return b"".join(line + b"\n" for line in lines)

    rewrite_secret_file(path, change)
    return was_there


def _entries(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that name a user, with their numbers."""
    for number, line in enumerate(content.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith(b"#"):
            yield number, stripped


def _entry(line: bytes) -> tuple[str, str, str]:
    """Name, hash or key, and what is wrong with them, which is empty for a good line."""
    try:
        name, colon, hashed = line.decode().partition(":")
    except UnicodeDecodeError:
        return "", "", "a line that is not UTF-8"
    if not colon:
        return "", "", "a line without a colon"
    try:
        check_name(name)
    except BadName as bad:
        return "", "", f"a name that is not allowed: {bad}"
    if hashed.startswith(NKEY):
        is_key = public_key(hashed.removeprefix(NKEY)) is not None
        return name, hashed, "" if is_key else f"user {name} with a key that is no public NKey of a user"
    found = _HASH.fullmatch(hashed)
    if found is None:
        return name, "", f"user {name} without an argon2id hash"
    cost = _cost(found)
    if not (1 <= cost.lanes <= LANES_MAX and 1 <= cost.times <= TIME_COST_MAX):
        return name, "", f"user {name} with a hash that costs {cost.times} times and {cost.lanes} lanes"
    if not 8 * cost.lanes <= cost.memory_kib <= MEMORY_KIB_MAX:
        return name, "", f"user {name} with a hash that costs {cost.memory_kib} KiB of memory"
    return name, hashed, ""


def _cost(found: re.Match[str]) -> Cost:
    return Cost(*(int(number) for number in found.groups()))
