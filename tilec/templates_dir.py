"""Where the templates lie: packed into the wheel, or at the top of the repository.

A wheel carries them as ``tilec/templates``; a checkout or an editable install has them beside the package.
Example: ``path() / "prelude" / "mma.cuh"``.
"""

from pathlib import Path


def path() -> Path:
    """The folder that holds the templates; FileNotFoundError if this installation has none."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "templates", package.parent / "templates"):
        if (candidate / "prelude").is_dir():
            return candidate
    raise FileNotFoundError(f"tilec's templates are neither in {package} nor beside it; install tilec again")
