"""The version of tidybert: of the distribution with the modules, and of the one with the rest."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from tidybert.system.terminal import warn_user


@cache
def installed_version() -> str:
    """The version of the modules; warns where ``tidybert``, which requires them, has another."""
    modules, whole = (_version_of(name) for name in ("tidybert-light", "tidybert"))
    if modules and whole and modules != whole:
        warn_user(
            f"tidybert {whole} is installed with tidybert-light {modules}, which has the modules: "
            f"pip install tidybert-light=={whole}",
            UserWarning,
        )
    return modules or whole or "unknown"


def extra_of(name: str) -> str:
    """What pip installs for an extra that answers need, without PyTorch where there is none."""
    return f"tidybert{'' if _version_of('tidybert') else '-light'}[{name}]"


def _version_of(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
