"""packaging/: its examples are valid, and agree with the server's defaults.

nginx, Caddy, systemd, shellcheck and a schema of Kubernetes check them where they are installed.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from tidybert.cli import main as shell

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"


def needs(program: str) -> str:
    """Where a program is; skips where it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}")
    return found


def read(name: str) -> str:
    return (PACKAGING / name).read_text(encoding="utf-8")


def default(flag: str) -> object:
    """The default of a flag of ``tidybert serve``."""
    command = shell.program().commands["serve"]  # type: ignore[attr-defined]
    (found,) = (each.default for each in command.params if flag in each.opts)
    return found


def parse_serve(words: list[str]) -> None:
    """Parse ``tidybert serve …``; click raises for what it does not know."""
    command = shell.program().commands["serve"]  # type: ignore[attr-defined]
    command.make_context("serve", words)


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(read("tidybert.service"))
    return unit["Service"]


def test_the_proxies_have_the_servers_limits() -> None:
    assert default("--max-body") == 2 * 2**20
    assert "client_max_body_size 2m;" in read("nginx.conf")
    assert "max_size 2MiB" in read("Caddyfile")
    assert default("--port") == 8000
    assert "server 127.0.0.1:8000;" in read("nginx.conf")
    assert "reverse_proxy 127.0.0.1:8000 {" in read("Caddyfile")
    deadline = float(str(default("--deadline")))
    for name, pattern in {
        "nginx.conf": r"proxy_read_timeout (\d+)s;",
        "Caddyfile": r"response_header_timeout (\d+)s",
        "tidybert.service": r"TimeoutStopSec=(\d+)",
    }.items():
        (seconds,) = re.findall(pattern, read(name))
        assert deadline + 5 < int(seconds), name


def test_the_container_serves_without_root() -> None:
    lines = read("Containerfile").replace("\\\n", " ").splitlines()
    given = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    last = dict(given)
    assert last["USER"] == "10001:10001"
    entry = json.loads(last["ENTRYPOINT"])
    assert entry[:2] == ["tidybert", "serve"]
    parse_serve([*entry[2:], "/models/my-model"])
    health = json.loads(last["HEALTHCHECK"].partition("CMD")[2])
    compile(health[2], "health check", "exec")
    assert "127.0.0.1:8000/health/ready" in health[2]
    for _, rest in ((word, rest) for word, rest in given if word == "COPY"):
        for path in rest.split()[:-1]:
            assert path.startswith("--") or path == "/opt/tidybert" or (ROOT / path).exists()
    stages = [rest.partition(" AS ")[::2] for word, rest in given if word == "FROM"]
    assert stages[-2:] == [("serve", "light"), ("serve", "")]
    installs = [shlex.split(rest) for _, rest in given if rest.startswith("pip install")]
    whole, light = (
        tomllib.loads((ROOT / place / "pyproject.toml").read_text())
        for place in ("", "packaging/light")
    )
    (torch,) = (word for words in installs for word in words if word.startswith("torch"))
    assert torch in whole["tool"]["tidybert"]["requires"]
    extras = re.findall(r"(/build\S*)\[(\w+)\]", " ".join(map(" ".join, installs)))
    assert extras == [("/build/packaging/light", "server"), ("/build", "server")]
    for project in (whole, light):
        assert "server" in project["project"]["optional-dependencies"]


def test_the_unit_starts_the_server(tmp_path: Path) -> None:
    program, name, *words = shlex.split(service()["ExecStart"])
    assert (program, name) == ("/opt/tidybert/bin/tidybert", "serve")
    parse_serve(words)
    assert service()["ExecReload"] == "/bin/kill -HUP $MAINPID"

    # A program that exists: tidybert is not in /opt here.
    unit = tmp_path / "tidybert.service"
    unit.write_text(read("tidybert.service").replace(program, sys.executable))
    verify = [needs("systemd-analyze"), "verify", "--man=no", str(unit)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_nginx_takes_its_example(tmp_path: Path) -> None:
    nginx, openssl = needs("nginx"), needs("openssl")
    text = read("nginx.conf").replace("/etc/tidybert/tls", str(tmp_path))
    make = f"{openssl} req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -keyout privkey.pem"
    subprocess.run(
        [*make.split(), "-out", "fullchain.pem"], cwd=tmp_path, capture_output=True, check=True
    )
    around = f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n"
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        around += f"{kind}_temp_path {tmp_path}/{kind};\n"
    (tmp_path / "all.conf").write_text(f"{around}{text}}}\n")
    done = subprocess.run(
        [nginx, "-t", "-p", str(tmp_path), "-c", str(tmp_path / "all.conf")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr.replace('"user" directive', "")


def test_caddy_takes_its_example(tmp_path: Path) -> None:
    caddy = needs("caddy")
    done = subprocess.run(
        [caddy, "validate", "--adapter", "caddyfile", "--config", str(PACKAGING / "Caddyfile")],
        env={"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def pretrain_words(text: str) -> list[str]:
    """The words of a command line after ``pretrain``."""
    words = shlex.split(text)
    return words[words.index("pretrain") + 1 :]


def parse_pretrain(words: list[str]) -> dict[str, object]:
    command = shell.program().commands["pretrain"]  # type: ignore[attr-defined]
    given: dict[str, object] = command.make_context("pretrain", words).params
    return given


def test_the_jobs_give_flags_that_a_restart_can_repeat() -> None:
    text = read("pretrain.sbatch").replace("\\\n", " ")
    (slurm,) = (line for line in text.splitlines() if " pretrain " in line)
    job = yaml.safe_load_all(read("pretrain-job.yaml"))
    (container,) = [*job][1]["spec"]["template"]["spec"]["containers"]
    for words in (slurm.rstrip("& "), shlex.join(container["args"])):
        given = parse_pretrain(pretrain_words(words))
        assert given["resume"] is True
        # torchrun kills its processes 30 seconds after SIGTERM.
        assert given["preempt_seconds"] == 25


def test_slurm_takes_its_script(tmp_path: Path) -> None:
    """A fake Slurm sends the signal; the script passes it on and queues itself again."""
    for name, body in {
        "scontrol": 'case $1 in show) echo node1;; *) echo "$@" >> calls;; esac',
        "srun": "echo \"$@\" >> calls; trap 'echo TERM >> calls; exit 1' TERM\n"
        "while :; do sleep 0.05; done",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2"}
    slurm |= {"SLURM_GPUS_ON_NODE": "8", "SLURM_JOB_ID": "7", "RUN": "/r"}
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    job = subprocess.Popen(
        ["bash", str(PACKAGING / "pretrain.sbatch")],
        cwd=tmp_path,
        env={**os.environ, **slurm, "PATH": path},
    )
    calls = tmp_path / "calls"
    for _ in range(200):
        if calls.exists():
            break
        time.sleep(0.05)
    time.sleep(0.2)  # the script sets its trap
    job.terminate()

    assert job.wait(timeout=20) == 0
    started, *rest = calls.read_text().splitlines()
    assert "--rdzv-endpoint node1:29400" in started
    assert rest == ["TERM", "requeue 7"]


def test_shellcheck_finds_nothing() -> None:
    scripts = [PACKAGING / "pretrain.sbatch", *sorted((ROOT / "examples").glob("*.sh"))]
    done = subprocess.run(
        [needs("shellcheck"), "--severity=warning", *map(str, scripts)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_kubernetes_takes_its_job() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all(read("pretrain-job.yaml")):
        validator.validate(document, validator.latest_version(), strict=True)
