"""Versions come from metadata; nothing is imported and the first on the path wins."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

from gputui.agent.facts import installed


def install(folder: Path, name: str, version: str, suffix: str = "dist-info") -> None:
    """Put a distribution's metadata into a folder, as pip leaves it."""
    metadata = folder / f"{name}-{version}.{suffix}"
    metadata.mkdir(parents=True)
    file = metadata / ("METADATA" if suffix == "dist-info" else "PKG-INFO")
    file.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_packages_that_matter_are_found_under_their_own_names(tmp_path):
    install(tmp_path, "cupy_cuda13x", "14.2.0")
    install(tmp_path, "dask_cuda", "26.10.0")
    install(tmp_path, "requests", "2.32.0")
    assert installed([str(tmp_path)]) == (("cupy-cuda13x", "14.2.0"), ("dask-cuda", "26.10.0"))


def test_the_first_on_the_path_wins(tmp_path):
    install(tmp_path / "user", "dask", "2026.8.0")
    install(tmp_path / "system", "dask", "2024.1.0")
    install(tmp_path / "system", "numpy", "1.26.4", "egg-info")
    folders = [str(tmp_path / "missing"), str(tmp_path / "user"), str(tmp_path / "system")]
    assert installed(folders) == (("dask", "2026.8.0"), ("numpy", "1.26.4"))


def test_an_egg_info_that_is_a_file_and_one_that_is_empty_are_read(tmp_path):
    (tmp_path / "scipy-1.8.0.egg-info").write_text("Name: scipy\nVersion: 1.8.0\n")
    (tmp_path / "torch-2.0.dist-info").mkdir()
    assert installed([str(tmp_path)]) == (("scipy", "1.8.0"), ("torch", ""))


def test_what_this_interpreter_has_is_what_its_metadata_say():
    versions = dict(installed())
    for name in ("dask", "distributed", "numpy"):
        assert versions[name] == importlib.metadata.version(name)


def test_nothing_is_imported_to_find_a_version():
    program = (
        "import sys; from gputui.agent.facts import installed; installed();"
        "print({'dask', 'distributed', 'numpy'} & sys.modules.keys())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip() == "set()"
