"""JMS for tests: a Java machine whose objects Python uses (py4j, which comes with Spark), and ActiveMQ in it.

The classes are Debian's (`libactivemq-java` and what it needs for MQTT), installed or unpacked into .venv. Those of
another JMS client, Apache Qpid JMS for AMQP 1.0, come from the class path in the variable QPID_JMS_CLASSPATH: neither
Debian nor PyPI nor npm has them.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

QPID_JMS = os.environ.get("QPID_JMS_CLASSPATH", "")
_UNPACKED = Path(sys.executable).parents[1] / "debian" / "jms" / "usr" / "share" / "java"
_INSTALLED = Path("/usr/share/java")
JARS = [
    *("activemq-broker", "activemq-client", "activemq-mqtt", "activemq-openwire-legacy", "geronimo-jms_1.1_spec"),
    *("geronimo-j2ee-management-1.1-spec", "hawtbuf", "hawtdispatch", "hawtdispatch-transport", "mqtt-client"),
    *("slf4j-api", "slf4j-simple"),
]
OPTIONS = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
AUTO_ACKNOWLEDGE, CLIENT_ACKNOWLEDGE = 1, 2
RECEIVE_MS = 20_000


def _folder() -> Path:
    return _INSTALLED if (_INSTALLED / "activemq-mqtt.jar").exists() else _UNPACKED


def has_activemq() -> bool:
    has_java = shutil.which("java") is not None and importlib.util.find_spec("pyspark") is not None
    return has_java and all((_folder() / f"{name}.jar").exists() for name in JARS)


@contextmanager
def java_machine(class_path: str = "") -> Iterator[Any]:
    """With the classes of ActiveMQ, or others. What it has is reached by its packages: `jvm.javax.jms...`."""
    import pyspark
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        GatewayParameters,
        JavaGateway,
        launch_gateway,
    )

    (bridge,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    class_path = class_path or ":".join(str(_folder() / f"{name}.jar") for name in JARS)
    port, token, process = launch_gateway(
        jarpath=str(bridge),
        classpath=class_path,
        javaopts=OPTIONS,
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()  # upon which it ends
        process.wait(20)


class ActiveMq:
    """A broker for JMS clients (OpenWire) and MQTT 3.1.1, in the Java machine."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._service = jvm.org.apache.activemq.broker.BrokerService()
        self._service.setPersistent(False)
        self._service.setUseJmx(False)
        self._service.setSchedulerSupport(False)
        openwire = self._service.addConnector("tcp://127.0.0.1:0")
        mqtt = self._service.addConnector("mqtt://127.0.0.1:0")
        self._service.start()
        self._service.waitUntilStarted()
        self._url = openwire.getConnectUri().toString()
        self.mqtt_port = int(mqtt.getConnectUri().getPort())

    def connect(self) -> Any:
        """A javax.jms.Connection."""
        return self._jvm.org.apache.activemq.ActiveMQConnectionFactory(self._url).createConnection()

    def stop(self) -> None:
        self._service.stop()
        self._service.waitUntilStopped()
