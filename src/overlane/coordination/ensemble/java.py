"""The Java program and the jars that a ZooKeeper server needs.

PySpark ships ZooKeeper: where it is installed, nothing else is needed but Java. `OVERLANE_ZOOKEEPER_JARS` names another
folder, such as `lib` of a ZooKeeper distribution.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from overlane.errors import Unavailable

JARS_VARIABLE = "OVERLANE_ZOOKEEPER_JARS"
JAVA_OLDEST = 11
NEEDED = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
ALSO = ("log4j-api", "log4j-core", "log4j-slf4j2-impl", "logback-classic", "logback-core", "netty", "commons-io")
"""For logs and TLS, where they are there."""
TIMEOUT_S = 20.0

_JAR = re.compile(r"(?P<name>[a-z0-9-]+?)-\d[\w.-]*\.jar")


def java_command() -> str:
    """The path of a Java program that is new enough. Unavailable."""
    found = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=f"{found}/bin") if found else None
    path = path or shutil.which("java")
    if path is None:
        raise Unavailable("Java", "not found; ZooKeeper needs it: apt-get install openjdk-17-jre-headless")
    said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_OLDEST:
        found_version = version[1] if version is not None else "unknown"
        raise Unavailable(path, f"version {found_version}; ZooKeeper needs Java {JAVA_OLDEST} or newer")
    return path


def server_jars() -> list[Path]:
    """The class path of a server. Unavailable where a jar is missing."""
    folder = _jar_folder()
    jars: dict[str, Path] = {}
    for path in sorted(folder.glob("*.jar")):
        if (match := _JAR.fullmatch(path.name)) is not None:
            jars[match["name"]] = path
    missing = [name for name in NEEDED if name not in jars]
    if missing:
        raise Unavailable(str(folder), f"no jar of {', '.join(missing)}; set {JARS_VARIABLE} to a folder that has them")
    return [path for name, path in jars.items() if name in NEEDED or name.startswith(ALSO)]


def _jar_folder() -> Path:
    if (named := os.environ.get(JARS_VARIABLE)) is not None:
        return Path(named)
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise Unavailable(
            "the jars of ZooKeeper",
            f"not found; pip install 'overlane[pipeline]' brings them, or set {JARS_VARIABLE} to their folder",
        )
    return Path(spark.origin).parent / "jars"
