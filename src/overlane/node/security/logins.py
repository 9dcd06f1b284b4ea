"""Logins: checks the password of a user.

A check deliberately costs tens of milliseconds of CPU time, so it runs in a thread, few run at once, and few wait: a
flood of logins is rejected as busy and does not affect the rest of the machine. For an unknown user a hash that belongs
to no user is checked, at the same cost, so that the time does not reveal which users exist.

A client that reconnects with the password that was correct before is accepted without the check: after a network
failure thousands reconnect at once. For this, the process keeps a digest of the last correct password of each user,
under a random key that is never stored; it is removed when the user's hash changes.
"""

import asyncio
import hashlib
import hmac
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path

from overlane.errors import Unavailable
from overlane.node.security.nkeys import has_signed
from overlane.node.security.users import Users, is_password, read_users
from overlane.secret import Secret

WAITING_MAX = 256
"""At some 25 ms a check, more would wait longer than a client has to connect."""


class Login(Enum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    BUSY = "busy"  # too many at once, or no memory for the check: the client may come again


class Logins:
    """Checks passwords against the users of one file. Belongs to one event loop."""

    def __init__(self, path: str | Path, *, threads: int | None = None, waiting_max: int = WAITING_MAX) -> None:
        """ConfigError when the file is wrong."""
        self._path = Path(path)
        self._waiting_max = waiting_max
        self._waiting = 0
        self._key = secrets.token_bytes(32)
        self._good: dict[str, tuple[str, bytes]] = {}  # by user: the hash it was checked against, and the digest
        # Half of the processors at most: the others go on carrying messages.
        workers = threads or max(1, (os.cpu_count() or 1) // 2)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="login")
        self.adopt(read_users(self._path))

    @property
    def waiting(self) -> int:
        """How many checks run or wait."""
        return self._waiting

    @property
    def users(self) -> Users:
        return self._users

    def reload(self) -> None:
        """Read the file again. ConfigError if it is invalid; then the users do not change."""
        self.adopt(read_users(self._path))

    def close(self) -> None:
        """Checks that run come to their end, those that wait are dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def check(self, name: str, password: Secret) -> Login:
        hashed = self._users.hashes.get(name)
        digest = self._digest(name, password)
        if hashed is not None and self._was_good(name, hashed, digest):
            return Login.ACCEPTED
        if self._waiting >= self._waiting_max:
            return Login.BUSY
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            is_good = await loop.run_in_executor(self._threads, is_password, hashed or self._nobody, password)
        except Unavailable:
            return Login.BUSY
        finally:
            self._waiting -= 1
        # The file may have changed meanwhile: what was checked must still be this user's hash.
        if not is_good or hashed is None or self._users.hashes.get(name) != hashed:
            return Login.REFUSED
        self._good[name] = (hashed, digest)
        return Login.ACCEPTED

    def user_of_key(self, nkey: str, challenge: bytes, signature: bytes) -> str:
        """Who has this key and has signed the challenge with it; "" if nobody. Takes a tenth of a millisecond."""
        user = self._users.nkeys.get(nkey, "")
        return user if user and has_signed(nkey, challenge, signature) else ""

    def adopt(self, users: Users) -> None:
        """These are the users from now on."""
        self._users = users
        self._nobody = users.usual_cost().hasher().hash(secrets.token_bytes(32))
        self._good = {name: good for name, good in self._good.items() if users.hashes.get(name) == good[0]}

    def _was_good(self, name: str, hashed: str, digest: bytes) -> bool:
        known = self._good.get(name)
        return known is not None and known[0] == hashed and hmac.compare_digest(known[1], digest)

    def _digest(self, name: str, password: Secret) -> bytes:
        # The name goes in with its length: no other pair of name and password gives the same bytes.
        shown = name.encode(errors="surrogatepass")
        message = len(shown).to_bytes(4, "big") + shown + password.reveal()
        return hmac.new(self._key, message, hashlib.sha256).digest()
