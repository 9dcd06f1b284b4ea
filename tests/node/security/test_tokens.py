"""JSON Web Tokens: which of them name a user, and which do not."""

import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from login_tokens import Issuer, write_keys

from overlane.errors import ConfigError
from overlane.network.schema.logins import Tokens
from overlane.node.security.tokens import TOKEN_BYTES_MAX, TokenCheck, looks_like_token
from overlane.secret import Secret

ISSUER, STRANGER = Issuer(), Issuer()


@pytest.fixture
def keys(tmp_path: Path) -> str:
    return str(write_keys(tmp_path / "keys.json", ISSUER))


def user_of(tokens: Tokens, token: bytes) -> str | None:
    found = TokenCheck(tokens).user_of(Secret(token))
    return None if found is None else found.name


def test_a_token_names_its_user_until_its_end(keys: str) -> None:
    token = ISSUER.token("alice", exp=4_102_444_800)
    assert looks_like_token(Secret(token))
    assert TokenCheck(Tokens(keys=keys)).user_of(Secret(token)) == ("alice", 4_102_444_800.0)


def unsigned(user: str) -> bytes:
    parts = ({"alg": "none", "kid": "first"}, {"sub": user, "exp": 4_102_444_800})
    return b".".join([*(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in parts), b""])


def signed_with_the_public_key() -> bytes:
    """As if what everybody may know were a secret that both sides share."""
    claims = {"sub": "alice", "exp": 4_102_444_800}
    return jwt.encode(claims, ISSUER.public()["x"], "HS256", {"kid": "first"}).encode()


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(STRANGER.token(), id="signed by another"),
        pytest.param(ISSUER.token(for_s=-31), id="ended, beyond the leeway"),
        pytest.param(ISSUER.token(exp=None), id="without an end"),
        pytest.param(ISSUER.token(None), id="without a user"),
        pytest.param(ISSUER.token(7), id="a user that is no name"),  # type: ignore[arg-type]
        pytest.param(ISSUER.token("*"), id="a name with a meaning of its own"),
        pytest.param(ISSUER.token(nbf=4_102_444_800), id="not yet valid"),
        pytest.param(ISSUER.token(exp=float("inf")), id="ends never"),
        pytest.param(Issuer("second").token(), id="an unknown key"),
        pytest.param(ISSUER.token()[:-4], id="cut off"),
        pytest.param(b"eyJ.eyJ.x", id="garbage"),
        pytest.param(ISSUER.token(much="x" * TOKEN_BYTES_MAX), id="too long"),
        pytest.param(unsigned("alice"), id="not signed"),
        pytest.param(signed_with_the_public_key(), id="signed with the public key"),
    ],
)
def test_other_tokens_name_nobody(keys: str, token: bytes) -> None:
    assert user_of(Tokens(keys=keys), token) is None


def test_issuer_and_audience_must_be_as_in_the_file(keys: str) -> None:
    tokens = Tokens(keys=keys, issuer="https://id.example.com", audience="overlane", user_claim="name")
    good: dict[str, Any] = {"iss": "https://id.example.com", "aud": ["overlane", "others"], "name": "bob"}
    assert user_of(tokens, ISSUER.token(**good)) == "bob"
    for wrong in ({"iss": "https://evil.example.com"}, {"iss": None}, {"aud": "others"}, {"aud": None}, {"name": None}):
        assert user_of(tokens, ISSUER.token(**{**good, **wrong})) is None
    assert user_of(Tokens(keys=keys), ISSUER.token(aud="whoever")) == "alice"  # where none is asked for


def test_a_token_may_leave_out_its_key_only_where_there_is_one(tmp_path: Path) -> None:
    token = ISSUER.token(names_key=False)
    assert user_of(Tokens(keys=str(write_keys(tmp_path / "one.json", ISSUER))), token) == "alice"
    assert user_of(Tokens(keys=str(write_keys(tmp_path / "two.json", ISSUER, Issuer("second")))), token) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "?"}]}', '{"keys": 7}', "\xff"])
def test_a_key_set_that_is_none_is_refused_with_its_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"keys\.json"):
        TokenCheck(Tokens(keys=str(path)))


def test_a_key_set_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        TokenCheck(Tokens(keys=str(tmp_path / "none.json")))
