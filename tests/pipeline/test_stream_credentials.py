"""Who Spark is to a broker: users and passwords, and TLS, as options of `format("overlane")`, with a real broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tlsfront import tls_in_front

from overlane.node.security.password_hashes import Cost
from overlane.node.security.users import set_password
from overlane.pipeline import register
from overlane.pipeline.streaming.stream_client import Credentials, StreamClient
from overlane.secret import Secret
from overlane.testbed.certificates import Authority
from sparks import PARTS, the_spark
from watched import WatchedBroker, let_in

pytestmark = [PARTS, pytest.mark.slow]

RULES = (
    '[security]\nanonymous = true\nusers = "users.txt"\n'
    '[[access]]\nuser = "anonymous"\npublish = ["#"]\nsubscribe = ["#"]\n'
    '[[access]]\nuser = "alice"\nsubscribe = ["in/#"]\npublish = ["out/#"]\n'
)
PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    session = the_spark()
    register(session)
    return session


@pytest.fixture
def reached(tmp_path: Path) -> Iterator[tuple[WatchedBroker, dict[str, str]]]:
    """A broker behind TLS, and the options by which alice reaches it."""
    set_password(tmp_path / "users.txt", "alice", Secret(PASSWORD.encode()), Cost(memory_kib=64, times=1))
    broker = WatchedBroker(tmp_path, RULES)
    broker.start()
    authority = Authority(tmp_path)
    try:
        with tls_in_front(broker.admin, authority.server()) as address:
            options = {"brokers": address, "ca": str(authority.ca), "user": "alice", "password": PASSWORD}
            yield broker, {**options, "patience": "60"}
    finally:
        broker.kill()


def test_a_query_reads_and_writes_as_the_user_it_names_behind_tls(
    spark: SparkSession, reached: tuple[WatchedBroker, dict[str, str]], tmp_path: Path
) -> None:
    broker, options = reached
    reading = {**options, "stream": "copy", "topic": "in/#"}
    operator = StreamClient(broker.admin, Credentials())
    check = operator.create("check", "out/#", "everywhere", with_retained=False)
    assert spark.read.format("overlane").options(**reading).load().count() == 0
    with let_in(broker.port, "publisher") as caller:
        for payload in (b"0", b"1", b"2"):
            caller.publish("in/a", payload)
    messages = spark.readStream.format("overlane").options(**reading).load()
    answers = messages.selectExpr("concat('out/', topic) AS topic", "payload").writeStream.format("overlane")
    checkpoint = str(tmp_path / "checkpoint")
    query = answers.options(**options, checkpointLocation=checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None
    page = operator.read("check", check.since_ns, 0, operator.get("check").next, 10)
    assert [(one.topic, one.payload) for one in page.messages] == [("out/in/a", b"%d" % n) for n in range(3)]


def test_a_wrong_password_is_told_and_not_shown(
    spark: SparkSession, reached: tuple[WatchedBroker, dict[str, str]]
) -> None:
    _, options = reached
    wrong = {**options, "password": "guessed it", "stream": "copy", "topic": "in/#"}
    with pytest.raises(PySparkException, match="unknown user or wrong password") as refused:
        spark.read.format("overlane").options(**wrong).load().count()
    assert "guessed it" not in str(refused.value)
    writing = spark.sql("SELECT 'out/a' AS topic, 'x' AS payload").write.format("overlane").mode("append")
    with pytest.raises(PySparkException, match="unknown user or wrong password") as refused:
        writing.options(**{**options, "password": "guessed it"}).save()
    assert "guessed it" not in str(refused.value)


def test_a_user_gets_and_publishes_only_what_it_may(
    spark: SparkSession, reached: tuple[WatchedBroker, dict[str, str]]
) -> None:
    broker, options = reached
    with pytest.raises(PySparkException, match="not allowed to subscribe to #"):
        spark.read.format("overlane").options(**options, stream="all", topic="#").load().count()
    rows = spark.sql("SELECT 'in/a' AS topic, 'x' AS payload")
    with pytest.raises(PySparkException, match="not allowed to publish on in/a"):
        rows.write.format("overlane").options(**options).mode("append").save()
    assert broker.get("/streams")["items"] == []


def test_a_certificate_that_nobody_vouches_for_is_told(
    spark: SparkSession, reached: tuple[WatchedBroker, dict[str, str]]
) -> None:
    _, options = reached
    unknown = {name: value for name, value in options.items() if name != "ca"}
    with pytest.raises(PySparkException, match="unable to get local issuer certificate"):
        spark.read.format("overlane").options(**unknown, stream="copy", topic="in/#").load().count()
