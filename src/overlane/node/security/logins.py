"""Logins: finds out whether a client is the user it names, by the users file, by tokens, or by a service.

A name in the users file is checked by that file alone. Otherwise a password that is a JSON Web Token decides, where
tokens are accepted, and then the service that the network file names.

A check of a password deliberately costs tens of milliseconds of CPU time, so it runs in a thread, few run at once, and
few wait: a flood of logins is rejected as busy and does not affect the rest of the machine. For an unknown user a hash
that belongs to no user is checked, at the same cost, so that the time does not reveal which users exist.

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
from typing import NamedTuple

from overlane.errors import Unavailable
from overlane.network.schema import Security
from overlane.network.schema.logins import LoginHook, Tokens
from overlane.node.security.login_hook import HookAnswer, HookCheck
from overlane.node.security.nkeys import has_signed
from overlane.node.security.password_hashes import decoy, is_password
from overlane.node.security.tokens import TokenCheck, looks_like_token
from overlane.node.security.users import Users, read_users
from overlane.secret import Secret

WAITING_MAX = 256
"""At some 25 ms a check, more would wait longer than a client has to connect."""


class Login(Enum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    BUSY = "busy"  # too many at once, or no memory for the check: the client may come again
    UNAVAILABLE = "unavailable"  # the service that knows gave no answer: the client may come again


_HOOK_ANSWERS = {
    HookAnswer.ACCEPTED: Login.ACCEPTED,
    HookAnswer.REFUSED: Login.REFUSED,
    HookAnswer.UNAVAILABLE: Login.UNAVAILABLE,
    HookAnswer.BUSY: Login.BUSY,
}


class LoginResult(NamedTuple):
    login: Login
    user: str = ""
    until_s: float | None = None
    """Unix time at which the client has to log in again."""


class LoginClient(NamedTuple):
    """What a service may want to know of a client, besides its user."""

    client_id: str = ""
    address: str = ""
    listener: str = ""


class LoginFiles(NamedTuple):
    """What the files say that logins need."""

    users: Users
    tokens: TokenCheck | None


def read_login_files(security: Security) -> LoginFiles:
    """ConfigError."""
    return _read_files(security.users, security.jwt)


def open_logins(security: Security) -> "Logins | None":
    """None where no user names are known. ConfigError."""
    if security.users is None and security.jwt is None and security.hook is None:
        return None
    return Logins(security.users, jwt=security.jwt, hook=security.hook)


def _read_files(users: str | Path | None, jwt: Tokens | None) -> LoginFiles:
    return LoginFiles(read_users(users) if users is not None else Users(), TokenCheck(jwt) if jwt is not None else None)


class Logins:
    """Belongs to one event loop."""

    def __init__(
        self,
        path: str | Path | None,
        *,
        jwt: Tokens | None = None,
        hook: LoginHook | None = None,
        threads: int | None = None,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        """ConfigError when a file is wrong."""
        self._path, self._jwt = path, jwt
        files = _read_files(path, jwt)
        self._hook = HookCheck(hook) if hook is not None else None
        self._waiting_max = waiting_max
        self._waiting = 0
        self._key = secrets.token_bytes(32)
        self._good: dict[str, tuple[str, bytes]] = {}  # by user: the hash it was checked against, and the digest
        # Half of the processors at most: the others go on carrying messages.
        workers = threads or max(1, (os.cpu_count() or 1) // 2)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="login")
        self.adopt(files)

    @property
    def waiting(self) -> int:
        """How many checks run or wait."""
        return self._waiting

    @property
    def users(self) -> Users:
        return self._users

    def reload(self) -> None:
        """Read the files again. ConfigError if one is invalid; then nothing changes."""
        self.adopt(_read_files(self._path, self._jwt))

    def is_for(self, security: Security) -> bool:
        """Whether these are the files and the service that the network file names."""
        hook = self._hook.hook if self._hook is not None else None
        return (self._path, self._jwt, hook) == (security.users, security.jwt, security.hook)

    def close(self) -> None:
        """Checks that run come to their end, those that wait are dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._hook is not None:
            self._hook.close()

    async def check(self, name: str, password: Secret) -> Login:
        return (await self.log_in(name, password)).login

    async def log_in(self, name: str, password: Secret, client: LoginClient = LoginClient()) -> LoginResult:  # noqa: B008
        """`name` may be empty where the password is a token, which names the user."""
        if name not in self._users:
            if self._tokens is not None and looks_like_token(password):
                return self._user_of_token(self._tokens, name, password)
            if self._hook is not None and name:
                answer = await self._hook.ask(name, password, self._digest(name, password), *client)
                return LoginResult(_HOOK_ANSWERS[answer], name)
            if not self._users:
                return LoginResult(Login.REFUSED, name)
        return LoginResult(await self._check_password(name, password), name)

    def _user_of_token(self, tokens: TokenCheck, name: str, token: Secret) -> LoginResult:
        """A token names no user of the users file, and nobody else than the client does."""
        found = tokens.user_of(token)
        if found is None or name not in ("", found.name) or found.name in self._users:
            return LoginResult(Login.REFUSED, name)
        return LoginResult(Login.ACCEPTED, found.name, found.until_s)

    async def _check_password(self, name: str, password: Secret) -> Login:
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

    def adopt(self, files: LoginFiles) -> None:
        """This is what the files say from now on."""
        users, self._tokens = files
        self._users = users
        self._nobody = decoy(users.hashes.values())
        self._good = {name: good for name, good in self._good.items() if users.hashes.get(name) == good[0]}

    def _was_good(self, name: str, hashed: str, digest: bytes) -> bool:
        known = self._good.get(name)
        return known is not None and known[0] == hashed and hmac.compare_digest(known[1], digest)

    def _digest(self, name: str, password: Secret) -> bytes:
        # The name goes in with its length: no other pair of name and password gives the same bytes.
        shown = name.encode(errors="surrogatepass")
        message = len(shown).to_bytes(4, "big") + shown + password.reveal()
        return hmac.new(self._key, message, hashlib.sha256).digest()
