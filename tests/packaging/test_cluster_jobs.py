"""The jobs for KubeRay and Slurm: what their own checkers, and a reader, would refuse."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tidybert.cli import main as shell

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB, SCRIPT = EXAMPLES / "ray-job.yaml", EXAMPLES / "ray-slurm.sh"


def test_the_job_for_kuberay_mounts_what_its_command_names() -> None:
    job = yaml.safe_load(JOB.read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for pod in pods:
        spec = pod["template"]["spec"]
        (container,), (volume,) = spec["containers"], spec["volumes"]
        (mount,) = container["volumeMounts"]
        assert mount["name"] == volume["name"]
        paths = [word for word in job["spec"]["entrypoint"].split() if word.startswith("/")]
        assert all(path.startswith(f"{mount['mountPath']}/") for path in paths)
    assert set(cluster["workerGroupSpecs"][0]) >= {"groupName", "replicas", "rayStartParams"}


@pytest.mark.parametrize("path", [JOB, SCRIPT], ids=lambda path: path.name)
def test_the_command_has_flags_that_there_are(path: Path) -> None:
    text = path.read_text()
    command = text[text.index("tidybert predict") :]
    line = command.split("backoffLimit")[0].replace("\n", " ")
    (predict,) = [each for name, each in shell.program().commands.items() if name == "predict"]
    known = {flag for parameter in predict.params for flag in parameter.opts}
    assert {word for word in shlex.split(line) if word.startswith("--")} <= known


def test_the_script_for_slurm_is_clean_for_shellcheck() -> None:
    assert SCRIPT.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    found = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
