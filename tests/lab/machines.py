"""Definitions of the lab's machines."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Nic:
    """One network card on the machine's wire.

    model: QEMU's name. numa_node: the node of its PCI host bridge; None is the main bridge, which has no node.
    addresses: in CIDR notation. netns: the namespace of the guest it is moved to, None for none.
    queues: of a tap (virtio-net-pci only); a card without tap has what its model has.
    """

    model: str
    addresses: tuple[str, ...]
    numa_node: int | None = None
    netns: str | None = None
    queues: int = 1


@dataclass(frozen=True)
class Machine:
    """One guest. numa_nodes share the CPUs and the memory evenly, in order.

    disk: an NVMe disk with managed interrupts. spare_controllers: unused virtio-serial controllers with 64 movable
    interrupts each. interrupt_remapping: as on servers; with it an affinity takes effect, and a full CPU is refused, at
    the write, without it at the next interrupt. kernel_arguments: in addition to those of every guest.
    """

    name: str
    packages: int
    cores: int
    threads: int = 1
    numa_nodes: int = 1
    memory_mib: int = 1024
    nics: tuple[Nic, ...] = ()
    disk: bool = False
    spare_controllers: int = 0
    interrupt_remapping: bool = False
    kernel_arguments: tuple[str, ...] = field(default=())

    @property
    def cpus(self) -> int:
        """Return the number of logical CPUs."""
        return self.packages * self.cores * self.threads


PEER = "peer"
"""The namespace of a guest from which traffic comes to it."""

TWO_SOCKET = Machine(
    name="two-socket",
    packages=2,
    cores=4,
    numa_nodes=2,
    memory_mib=1536,
    nics=(
        Nic("igb", ("10.1.0.1/24",), numa_node=0),
        Nic("igb", ("10.2.0.1/24",), numa_node=1),
        Nic("e1000e", ("10.1.0.9/24", "10.2.0.9/24"), netns=PEER),
    ),
    disk=True,
)

SMALL_VM = Machine(
    name="small-vm",
    packages=1,
    cores=2,
    threads=2,
    nics=(
        Nic("virtio-net-pci", ("10.1.0.1/24",)),
        Nic("e1000e", ("10.2.0.1/24",)),
        Nic("vmxnet3", ("10.1.0.9/24", "10.2.0.9/24"), netns=PEER),
    ),
    spare_controllers=4,
    interrupt_remapping=True,
    kernel_arguments=("isolcpus=3",),
)

TRIO = tuple(
    Machine(
        name=f"trio-{number}",
        packages=1,
        cores=4,
        nics=(Nic("virtio-net-pci", (f"10.1.0.{number}/24",), queues=4),),
    )
    for number in (1, 2, 3)
)

MACHINES: dict[str, tuple[Machine, ...]] = {"two_socket": (TWO_SOCKET,), "small_vm": (SMALL_VM,), "trio": TRIO}
"""By the name that `make lab-up MACHINE=…` takes."""
