import os
from collections.abc import Iterator

import pytest
from tests.lab.fleet import Backend, agent_in, backend
from tests.lab.machines import SMALL_VM, TRIO, TWO_SOCKET
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


@pytest.fixture(scope="session")
def host() -> Iterator[Backend]:
    """Yield a backend on this host that guests can reach by its port."""
    with backend() as running:
        yield running


@pytest.fixture(scope="session")
def two_socket(kit: Kit, host: Backend) -> Iterator[Guest]:
    with boot(kit, TWO_SOCKET, backend_port=host.port) as [guest]:
        yield guest


@pytest.fixture(scope="session")
def small_vm(kit: Kit, host: Backend) -> Iterator[Guest]:
    with boot(kit, SMALL_VM, backend_port=host.port) as [guest]:
        yield guest


@pytest.fixture(params=["two_socket", "small_vm"])
def guest(request: pytest.FixtureRequest) -> Guest:
    """Yield each of the single machines in turn."""
    found: Guest = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def trio(kit: Kit, host: Backend) -> Iterator[list[Guest]]:
    if os.geteuid() != 0:
        pytest.skip("The bridge between guests needs root.")
    with boot(kit, *TRIO, backend_port=host.port) as guests:
        yield guests


@pytest.fixture
def agent(two_socket: Guest, host: Backend) -> Iterator[int]:
    """Return the PID of the agent in the guest."""
    with agent_in(two_socket, host) as pid:
        yield pid
