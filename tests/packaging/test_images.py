"""The steps of the container images' Dockerfiles, without a container engine."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from coresteer.config import REPOSITORY

UV = REPOSITORY / ".venv/bin/uv"
IGNORED = shutil.ignore_patterns("node_modules", "dist", "build", "__pycache__", ".venv", "tests", "*.tsbuildinfo")
"""As .dockerignore does."""
images = pytest.mark.parametrize("image", ["agent", "backend"])


def last_stage(image: str) -> str:
    text = (REPOSITORY / image / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    return text.rpartition("FROM ")[2]


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=IGNORED, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


@images
def test_an_image_pins_one_version_of_each_library_for_its_python(image: str, tmp_path: Path) -> None:
    stage = last_stage(image)
    shutil.copy(REPOSITORY / "requirements.lock", tmp_path)
    (command,) = re.findall(r"^RUN (grep .+)$", stage, re.MULTILINE)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    python = {"python_version": stage[len("python:") :].partition("-")[0]}
    python["python_full_version"] = f"{python['python_version']}.0"
    pins = [Requirement(line) for line in (tmp_path / "constraints.txt").read_text().splitlines()]
    names = [pin.name for pin in pins if pin.marker is None or pin.marker.evaluate(python)]
    assert {"msgspec", "numpy"} < set(names)
    assert sorted(names) == sorted(set(names))


@images
def test_the_distributions_of_an_image_are_built_from_what_it_copies(image: str, tmp_path: Path) -> None:
    subprocess.run(["make", "--silent", "frontend/dist/.built"], cwd=REPOSITORY, check=True)
    stage = last_stage(image)
    for words in re.findall(r"^COPY (.+)$", stage, re.MULTILINE):
        *sources, target = [word for word in words.split() if not word.startswith("--")]
        for source in sources:
            path = REPOSITORY / source.removeprefix("/build/")
            copy(path, tmp_path / (f"{target}{path.name}" if target.endswith("/") else target))
    (installed,) = re.findall(r"^RUN pip install (.+)$", stage, re.MULTILINE)
    distributions = re.findall(r"\./[\w/-]+", installed)
    for each in distributions:
        argv = [UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", tmp_path / "wheels", each]
        subprocess.run([*argv, "--python", REPOSITORY / ".venv/bin/python"], cwd=tmp_path, check=True)
    assert len(list((tmp_path / "wheels").glob("*.whl"))) == len(distributions)


def test_the_page_is_built_without_the_tests_that_no_image_has(tmp_path: Path) -> None:
    modules = REPOSITORY / "frontend/node_modules"
    subprocess.run(["make", "--silent", "frontend/node_modules/.installed"], cwd=REPOSITORY, check=True)
    copy(REPOSITORY / "frontend", tmp_path / "frontend")
    (tmp_path / "frontend/node_modules").symlink_to(modules)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=tmp_path / "frontend", check=True)
    assert (tmp_path / "frontend/dist/index.html").exists()
