"""scripts/setup installs what its purpose needs and no more, and nothing a second time; with stand-ins for programs."""

import shutil
import subprocess
from pathlib import Path

import pytest
from docpages import PROJECT

PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
*"pip install"*" uv")
    if [ -e no-uv ]; then exit 1; fi
    cp uv .venv/bin/uv ;;
*"pip install"*)
    echo pip "$@" >> run.txt
    echo Collecting numpy
    echo a warning >&2
    if [ -e no-network ]; then echo no network >&2; exit 1; fi
    cp "$0" .venv/bin/overlane ;;
esac
"""
UV = """#!/bin/sh
if [ -e no-network ]; then exit 2; fi
echo uv "$@" >> run.txt
echo a warning >&2
cp "$0" .venv/bin/overlane
"""
APT_GET = """#!/bin/sh
echo apt-get "$@" >> "$RUN"
for word; do
    case "$word" in Dir::Cache::archives=*) : > "${word#*=}/a.deb" ;; esac
    last="$word"
done
if [ "$last" = openjdk-17-jre-headless ]; then cp java-17 bin/java; fi
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/sbin" "$3/usr/lib/here" "$3/usr/lib/rabbitmq/bin" "$3/usr/lib/erlang/bin"
: > "$3/usr/lib/here/libwebsockets.so.17"
printf '#!/bin/sh\\nROOTDIR=/usr/lib/erlang\\necho "$ROOTDIR"\\n' > "$3/usr/lib/erlang/bin/erl"
printf '#!/bin/sh\\nerl\\n' > "$3/usr/lib/rabbitmq/bin/rabbitmq-server"
printf '#!/bin/sh\\necho "$LD_LIBRARY_PATH" "$@"\\n' > "$3/usr/sbin/mosquitto"
printf '#!/bin/sh\\necho port mapper "$@"\\n' > "$3/usr/lib/erlang/bin/epmd"
chmod +x "$3/usr/sbin/mosquitto" "$3/usr/lib/rabbitmq/bin/rabbitmq-server" "$3/usr/lib/erlang/bin/"*
"""
ROOT = "#!/bin/sh\necho 0\n"
JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.9\"' >&2\n"
TOOLS = ("bash", "cat", "chmod", "cmp", "cp", "dirname", "env", "find", "head", "mkdir", "paste", "rm", "sed", "sh")
MORE_TOOLS = ("sort", "tail", "tee")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone on a machine that has Python and apt-get and little else."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(PROJECT / "scripts" / "setup", tmp_path / "scripts")
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    (tmp_path / "bin").mkdir()
    for name in (*TOOLS, *MORE_TOOLS):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    programs = {
        "bin/python3": PYTHON,
        "bin/apt-get": APT_GET,
        "bin/dpkg": DPKG,
        "bin/id": ROOT,
        "java-17": JAVA,
        "uv": UV,
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def set_up(project: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(project / "scripts" / "setup"), *words],
        env={
            "PATH": str(project / "bin"),
            "RUN": str(project / "run.txt"),
            **dict.fromkeys(("SERVERS_PATH", "PROTON_PATH", "RABBITMQ_PATH", "JAVA_LIBRARIES_PATH"), ""),
            "SYSTEM_PYTHON": str(project / "system-python"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def ran(project: Path) -> list[str]:
    """What was installed since it was last asked: the extras, and then Debian's packages."""
    file = project / "run.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    of_debian = [line for line in lines if line.startswith("apt-get") and " update " not in f"{line} "]
    unpacked = [line for line in of_debian if "Dir::Cache::archives" in line]
    return [
        *(line.rpartition(" ")[2] for line in lines if line.startswith(("pip", "uv"))),
        *(line.rpartition("--no-install-recommends ")[2] for line in of_debian if line not in unpacked),
        *(f"unpacked {line.split()[-1]}" for line in unpacked),
    ]


def test_the_demo_gets_the_pipeline_the_coordination_and_java_and_no_more(project: Path) -> None:
    done = set_up(project, "demo")
    assert done.returncode == 0, done.stderr
    assert ran(project) == [".[coordination,pipeline,telemetry]", "openjdk-17-jre-headless"]
    assert done.stdout == ""
    assert "a warning" not in done.stderr
    assert "a warning" in (project / ".venv" / "setup.log").read_text()


@pytest.mark.parametrize("words", [("test",), ()])
def test_tests_get_all_that_they_need(project: Path, words: tuple[str, ...]) -> None:
    done = set_up(project, *words)
    assert done.returncode == 0, done.stderr
    assert ran(project) == [
        ".[all,bench,dev]",
        "openjdk-17-jre-headless",
        "python3-qpid-proton",
        "python3-dev",
        "mosquitto-clients",
        "iproute2",
        "chromium fonts-dejavu-core",
        "tshark",
        "curl jq openssl sqlite3",
        "unpacked mosquitto",
        "unpacked rabbitmq-server",
        "unpacked libslf4j-java",
    ]


def test_mosquitto_is_unpacked_with_its_libraries_and_not_installed(project: Path) -> None:
    set_up(project, "test")
    program = project / ".venv" / "bin" / "mosquitto"
    told = subprocess.run([str(program), "-c", "file"], capture_output=True, text=True, check=True).stdout
    assert told == f"{project}/.venv/debian/mosquitto/usr/lib/here -c file\n"


def test_rabbitmq_is_unpacked_and_runs_the_erlang_that_came_with_it(project: Path) -> None:
    set_up(project, "test")
    program = project / ".venv" / "bin" / "rabbitmq-server"
    told = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    assert told == f"port mapper -daemon\n{project}/.venv/debian/rabbitmq-server/usr/lib/erlang\n"


def test_nothing_is_done_twice_and_what_serves_tests_serves_the_demo(project: Path) -> None:
    set_up(project, "demo")
    ran(project)
    set_up(project, "demo")
    assert ran(project) == []
    set_up(project, "test")
    assert ran(project)[0] == ".[all,bench,dev]"
    for purpose in ("demo", "test"):
        set_up(project, purpose)
        assert ran(project) == []
    with (project / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    set_up(project, "demo")
    assert ran(project) == [".[coordination,pipeline,telemetry]"]


def test_a_failure_is_told_and_the_next_run_tries_again(project: Path) -> None:
    (project / "no-network").touch()
    done = set_up(project, "demo")
    assert done.returncode == 1
    assert "no network" in done.stderr
    assert ran(project) == [".[coordination,pipeline,telemetry]", "openjdk-17-jre-headless"]
    (project / "no-network").unlink()
    assert set_up(project, "demo").returncode == 0
    assert ran(project) == [".[coordination,pipeline,telemetry]"]


def test_pip_installs_where_uv_cannot_be_had(project: Path) -> None:
    (project / "no-uv").touch()
    done = set_up(project, "demo")
    assert done.returncode == 0, done.stderr
    assert (project / "run.txt").read_text().count("pip -m pip install") == 1
    assert ran(project) == [".[coordination,pipeline,telemetry]", "openjdk-17-jre-headless"]


def test_lists_of_packages_are_fetched_once(project: Path) -> None:
    set_up(project, "test")
    assert (project / "run.txt").read_text().count("apt-get update") == 1


@pytest.mark.parametrize("can_make_environments", [True, False])
def test_pythons_of_the_system_come_first_if_they_can_make_environments(
    project: Path, can_make_environments: bool
) -> None:
    system = project / "system-python"
    lacks = "" if can_make_environments else 'case "$*" in *ensurepip*) exit 1 ;; esac\n'
    system.write_text(
        PYTHON.replace("#!/bin/sh\n", f'#!/bin/sh\n{lacks}[ "$1" != --version ] || echo Python of the system\n')
    )
    system.chmod(0o755)
    done = set_up(project, "demo")
    assert done.returncode == 0, done.stderr
    assert ("with Python of the system" in done.stderr) is can_make_environments


def test_another_purpose_is_refused(project: Path) -> None:
    done = set_up(project, "everything")
    assert (done.returncode, done.stderr) == (2, 'setup: got "everything"; expected demo or test\n')
