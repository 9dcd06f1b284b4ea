"""`overlane certs`: an authority of one's own, whose certificates brokers and clients accept."""

import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner, Result

from overlane.cli.main import app
from overlane.network.schema import Security
from overlane.node.security.tls import brokers_of, client_context, server_context, user_of


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def certs(*words: str) -> Result:
    return CliRunner().invoke(app, ["certs", *words])


def done(*words: str) -> None:
    ended = certs(*words)
    assert ended.exit_code == 0, ended.output


def met(server: str, client: str, host: str) -> tuple[dict[str, object], dict[str, object]]:
    """What a server and a client see of each other's certificates, which both check."""
    security = Security(certificate=f"certs/{server}.pem", key=f"certs/{server}.key", client_ca="certs/ca.pem")
    near, far = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server_context(security).wrap_bio(near, far, server_side=True)
    dialling = client_context(ca="certs/ca.pem", certificate=f"certs/{client}.pem", key=f"certs/{client}.key").wrap_bio(
        far, near, server_hostname=host
    )
    waiting = [dialling, serving]
    while waiting:
        one = waiting.pop(0)
        try:
            one.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(one)
    serving_sees, dialling_sees = serving.getpeercert(), dialling.getpeercert()
    assert serving_sees is not None
    assert dialling_sees is not None
    return dict(serving_sees), dict(dialling_sees)


def test_brokers_and_clients_accept_each_other_by_certificates_of_the_authority(here: Path) -> None:
    done("init")
    done("issue", "north", "--host", "10.0.0.1")
    done("issue", "south", "--continues", "north", "--host", "mq.example.org")
    done("issue", "alice", "--for", "client")
    dialler, dialled = met("north", "south", "north")
    assert brokers_of(dialler) == {"south", "north", "mq.example.org"}
    assert brokers_of(dialled) == {"north"}
    client, _ = met("north", "alice", "10.0.0.1")
    assert (user_of(client), brokers_of(client)) == ("alice", frozenset())
    met("south", "alice", "mq.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        met("north", "alice", "10.0.0.2")
    for name in ("ca", "north", "alice"):
        assert (here / "certs" / f"{name}.key").stat().st_mode & 0o077 == 0


def test_a_broker_whose_name_looks_like_an_address_is_known_by_it(here: Path) -> None:  # noqa: ARG001
    done("init")
    done("issue", "10.0.0.1", "--host", "10.0.0.1")
    assert json.loads(certs("show", "certs/10.0.0.1.pem", "--json").output)[0]["hosts"] == ["10.0.0.1", "10.0.0.1"]
    _, dialled = met("10.0.0.1", "10.0.0.1", "10.0.0.1")
    assert brokers_of(dialled) == {"10.0.0.1"}


def test_a_certificate_of_a_client_opens_no_server(here: Path) -> None:  # noqa: ARG001
    done("init")
    done("issue", "alice", "--for", "client")
    done("issue", "server", "--for", "server", "--host", "alice")
    with pytest.raises(ssl.SSLCertVerificationError):
        met("alice", "alice", "alice")


def test_a_renewed_certificate_has_the_same_names_and_another_key_and_end(here: Path) -> None:
    done("init")
    done("issue", "north", "--host", "10.0.0.1", "--days", "10")
    path = here / "certs" / "north.pem"
    before = x509.load_pem_x509_certificate(path.read_bytes())
    assert certs("show", "--within", "11").exit_code == 1
    done("renew", "north", "--days", "100")
    after = x509.load_pem_x509_certificate(path.read_bytes())
    names = [one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value for one in (before, after)]
    assert names[0] == names[1]
    assert before.subject == after.subject
    assert before.public_key() != after.public_key()
    assert (after.not_valid_after_utc - before.not_valid_after_utc).days in (89, 90)
    done("show", "--within", "11")
    met("north", "north", "north")


def test_what_is_there_is_not_replaced_unasked(here: Path) -> None:
    done("init")
    done("issue", "north")
    kept = {path: path.read_bytes() for path in (here / "certs").iterdir()}
    assert certs("init").exit_code == 2
    assert certs("issue", "north").exit_code == 2
    assert {path: path.read_bytes() for path in (here / "certs").iterdir()} == kept
    done("issue", "north", "--force")
    assert (here / "certs" / "north.pem").read_bytes() != kept[here / "certs" / "north.pem"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("issue", "north", "--for", "server", "--continues", "south"), "--continues is for brokers"),
        (("issue", "alice", "--for", "client", "--host", "10.0.0.1"), "no hosts"),
        (("issue", "ca"), "found the name 'ca'"),
        (("issue", "../north"), "found the name '../north'"),
        (("issue", "north", "--host", "bücher"), "found the host 'bücher'"),
        (("renew", "nobody"), "nobody.pem: found no way to read it"),
        (("renew", "garbage"), "garbage.pem: found no certificate"),
        (("issue", "north", "--dir", "elsewhere"), "allowed is the key of an authority"),
        (("show", "--dir", "elsewhere"), "elsewhere: found no certificate"),
    ],
)
def test_bad_input_gets_a_clear_error_and_changes_nothing(here: Path, words: tuple[str, ...], told: str) -> None:
    done("init")
    (here / "certs" / "garbage.pem").write_text("garbage")
    kept = sorted(path.name for path in here.rglob("*"))
    refused = certs(*words)
    assert refused.exit_code == 2
    assert told in refused.output
    assert sorted(path.name for path in here.rglob("*")) == kept


def test_an_authority_whose_key_is_not_its_own_issues_nothing(here: Path) -> None:
    done("init")
    done("init", "--dir", "other")
    (here / "certs" / "ca.key").write_bytes((here / "other" / "ca.key").read_bytes())
    refused = certs("issue", "north")
    assert refused.exit_code == 2
    assert "another key than that of ca.pem" in refused.output
    assert not (here / "certs" / "north.key").exists()


def test_certificates_are_shown(here: Path) -> None:  # noqa: ARG001
    done("init")
    done("issue", "north", "--host", "10.0.0.1")
    rows = json.loads(certs("show", "--json").output)
    assert [(row["name"], row["purpose"], row["hosts"]) for row in rows] == [
        ("Overlane CA", "authority", []),
        ("north", "broker", ["north", "10.0.0.1"]),
    ]
    assert "certs/north.pem: broker north for north, 10.0.0.1, until " in certs("show").output
