"""The lab's kit is fetched once, also where two programs ask for it at the same time."""

import fcntl
from pathlib import Path

import pytest
from tests.lab import provision


def test_only_one_fetches_the_kit_while_others_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []

    def fetch(cache: Path, sysroot: Path) -> None:
        with (cache.parent / "coresteer-lab.lock").open("w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (sysroot / "boot").mkdir(parents=True)
        (sysroot / "boot/vmlinuz-6.12").touch()
        fetched.append(cache)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home/.cache"))
    monkeypatch.setattr(provision, "_fetch", fetch)
    monkeypatch.setattr(provision, "_depmod", lambda sysroot, env: None)
    monkeypatch.setattr(provision, "write_initramfs", lambda path, sysroot, release: path)
    first, second = provision.provide(), provision.provide()
    assert first.kernel == second.kernel
    assert fetched == [tmp_path / "home/.cache/coresteer-lab"]
    with (tmp_path / "home/.cache/coresteer-lab.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
