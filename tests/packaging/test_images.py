"""The steps of the container images' Dockerfiles, without a container engine."""

import os
import re
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.packaging.test_wheels import environment

from coresteer.config import REPOSITORY

UV = REPOSITORY / ".venv/bin/uv"
images = pytest.mark.parametrize("image", ["agent", "backend"])


def stages(image: str) -> list[str]:
    """Return the text of each stage, which begins with the name of its base image."""
    text = (REPOSITORY / image / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    return re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]


def ignored(folder: str, entries: list[str]) -> set[str]:
    """Return which entries of a folder .dockerignore leaves out."""
    patterns = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").split()
    paths = {each: os.path.relpath(Path(folder) / each, REPOSITORY) for each in entries}
    return {
        each
        for each, path in paths.items()
        for pattern in patterns
        if fnmatchcase(path, pattern) or (pattern.startswith("**/") and each == pattern.removeprefix("**/"))
    }


def copy(stage: str, into: Path) -> None:
    """Do what the COPY lines of a stage do; what they copy from another stage is taken from the repository."""
    for words in re.findall(r"^COPY (.+)$", stage, re.MULTILINE):
        *sources, target = [word for word in words.split() if not word.startswith("--")]
        for source in sources:
            path = REPOSITORY / source.removeprefix("/build/")
            if path.is_dir():
                shutil.copytree(path, into / target, ignore=ignored, dirs_exist_ok=True)
            else:
                place = into / (f"{target}{path.name}" if target.endswith("/") else target)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)


def make(target: str) -> None:
    subprocess.run(["make", "--silent", target], cwd=REPOSITORY, env=environment(), check=True)


@images
def test_an_image_pins_one_version_of_each_library_for_its_python(image: str, tmp_path: Path) -> None:
    stage = stages(image)[-1]
    shutil.copy(REPOSITORY / "requirements.lock", tmp_path)
    (command,) = re.findall(r"^RUN (grep .+)$", stage, re.MULTILINE)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    python = {"python_version": stage.removeprefix("python:").partition("-")[0]}
    python["python_full_version"] = f"{python['python_version']}.0"
    pins = [Requirement(line) for line in (tmp_path / "constraints.txt").read_text().splitlines()]
    names = [pin.name for pin in pins if pin.marker is None or pin.marker.evaluate(python)]
    assert {"msgspec", "numpy"} < set(names)
    assert sorted(names) == sorted(set(names))


@images
def test_the_distributions_of_an_image_are_built_from_what_it_copies(image: str, tmp_path: Path) -> None:
    make("frontend/dist/.built")
    stage = stages(image)[-1]
    copy(stage, tmp_path)
    (installed,) = re.findall(r"^RUN pip install (.+)$", stage, re.MULTILINE)
    distributions = re.findall(r"\./[\w/-]+", installed)
    for each in distributions:
        argv = [UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", tmp_path / "wheels", each]
        subprocess.run([*argv, "--python", REPOSITORY / ".venv/bin/python"], cwd=tmp_path, check=True)
    assert len(list((tmp_path / "wheels").glob("*.whl"))) == len(distributions)


def test_the_page_of_the_backends_image_is_built_from_what_it_copies(tmp_path: Path) -> None:
    make("frontend/node_modules/.installed")
    stage = stages("backend")[0]
    (folder,) = re.findall(r"^WORKDIR /build/(.+)$", stage, re.MULTILINE)
    place = tmp_path / folder
    copy(stage, place)
    (place / "node_modules").symlink_to(REPOSITORY / "frontend/node_modules")
    *_, command = re.findall(r"^RUN (.+)$", stage, re.MULTILINE)
    subprocess.run(["sh", "-c", command], cwd=place, check=True)
    assert (place / "dist/index.html").exists()
