"""JSON Web Tokens: a client sends one as its password, and is the user that the token names.

Whoever issues the tokens signs them; the broker has the public keys, in a JSON Web Key Set. A key is used with its own
algorithm only, whatever the header of a token says. A token without an end is refused.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from overlane.core.units import SECOND
from overlane.errors import ConfigError, Fault
from overlane.extras import missing_extra
from overlane.network.schema.logins import Tokens
from overlane.node.security.users import BadName, check_name
from overlane.pubsub.contract.questions import TOKEN_START
from overlane.secret import Secret

if TYPE_CHECKING:
    from jwt import PyJWK

TOKEN_BYTES_MAX = 16_384
KEYS_BYTES_MAX = 1 << 20
_EXPECTED = "a JSON Web Key Set with public keys, as the issuer of the tokens publishes it"


class TokenUser(NamedTuple):
    name: str
    until_s: float
    """Unix time at which the token ends."""


def looks_like_token(password: Secret) -> bool:
    """Whether it is in three parts, of which the first is the beginning of a JSON object in base64."""
    shown = password.reveal()
    return shown.startswith(TOKEN_START) and shown.count(b".") == 2


class TokenCheck:
    def __init__(self, tokens: Tokens) -> None:
        """ConfigError if the key set cannot be used."""
        self.tokens = tokens
        self._keys = _read_keys(tokens.keys)

    def user_of(self, token: Secret) -> TokenUser | None:
        """Whom a token names; None if it is not valid here and now."""
        import jwt

        shown = token.reveal()
        if len(shown) > TOKEN_BYTES_MAX:
            return None
        try:
            key = self._key(jwt.get_unverified_header(shown).get("kid"))
            if key is None:
                return None
            claims = jwt.decode(
                shown,
                key=key,
                algorithms=[key.algorithm_name],
                audience=self.tokens.audience,
                issuer=self.tokens.issuer,
                leeway=self.tokens.leeway_ns / SECOND,
                options={"require": ["exp"], "verify_aud": self.tokens.audience is not None},
            )
            name = claims.get(self.tokens.user_claim)
            if not isinstance(name, str):
                return None
            check_name(name)
            return TokenUser(name, float(claims["exp"]))
        except (jwt.PyJWTError, BadName, ValueError, OverflowError):
            return None

    def _key(self, name: object) -> "PyJWK | None":
        """The one that the token says it is signed with; it may say nothing where there is one key only."""
        if name is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.key_id == name), None)


def _read_keys(path: str) -> "list[PyJWK]":
    try:
        import jwt
    except ModuleNotFoundError:
        raise ConfigError(
            [Fault(path, 0, "", missing_extra("jwt", "jwt"), "the package, or no [security.jwt]")]
        ) from None
    try:
        with Path(path).open("rb") as file:
            content = file.read(KEYS_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError([Fault(path, 0, "", f"a file that cannot be read: {error.strerror}", _EXPECTED)]) from None
    if len(content) > KEYS_BYTES_MAX:
        raise ConfigError([Fault(path, 0, "", f"more than {KEYS_BYTES_MAX} bytes", _EXPECTED)])
    try:
        keys = jwt.PyJWKSet.from_json(content.decode()).keys
        found = [key for key in keys if key.public_key_use in (None, "sig") and key.algorithm_name != "none"]
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError([Fault(path, 0, "", f"no usable key set: {str(error)[:100]}", _EXPECTED)]) from None
    if not found:
        raise ConfigError([Fault(path, 0, "", "no key that signs", _EXPECTED)])
    return found
