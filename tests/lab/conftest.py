import os
from collections.abc import Iterator

import pytest

from tests.lab.machines import SMALL_VM, TRIO, TWO_SOCKET, Machine
from tests.lab.provision import Kit, LabUnavailableError, provide
from tests.lab.rig import Guest, boot


@pytest.fixture(scope="session")
def kit() -> Kit:
    try:
        return provide()
    except LabUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"The lab cannot run here: {error}")


def _one(kit: Kit, machine: Machine) -> Iterator[Guest]:
    with boot(kit, machine) as [guest]:
        yield guest


@pytest.fixture(scope="session")
def two_socket(kit: Kit) -> Iterator[Guest]:
    yield from _one(kit, TWO_SOCKET)


@pytest.fixture(scope="session")
def small_vm(kit: Kit) -> Iterator[Guest]:
    yield from _one(kit, SMALL_VM)


@pytest.fixture(params=["two_socket", "small_vm"])
def guest(request: pytest.FixtureRequest) -> Guest:
    """Each of the single machines in turn."""
    found: Guest = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def trio(kit: Kit) -> Iterator[list[Guest]]:
    if os.geteuid() != 0:
        pytest.skip("The bridge between guests needs root.")
    with boot(kit, *TRIO) as guests:
        yield guests
