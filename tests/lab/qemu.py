"""QEMU's command line of a machine."""

from pathlib import Path

from tests.lab.machines import Machine, Nic
from tests.lab.provision import Kit

MANAGEMENT_MAC = "52:54:00:00:00:ff"
BACKEND = ("10.0.2.100", 8420)
"""Where guests find the backend of the host; nothing else outside can be reached."""

CPU = "max,vendor=GenuineIntel,family=6,model=106,stepping=6,level=0x14,model-id=Virtual-Xeon"
KERNEL_ARGUMENTS = (
    "console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on "
    "net.ifnames=0"
)
_FIRST_BUS = 32


def mac(nic: Nic) -> str:
    """Return the MAC address of a NIC, derived from its first address; the guest identifies the NIC by it."""
    octets = nic.addresses[0].partition("/")[0].split(".")
    return "52:54:00:" + ":".join(f"{int(octet):02x}" for octet in octets[1:])


def command(
    kit: Kit,
    machine: Machine,
    *,
    control: Path,
    share: Path,
    python: str,
    inside: Path,
    forward: str | None,
    taps: list[int],
) -> list[str]:
    """Return the command line. control: path of the socket for commands.

    forward: a command that connects a guest to the backend.
    taps: descriptors of the taps of the machine's NICs, one per queue; empty for NICs on a private link.
    """
    kernel_arguments = [
        KERNEL_ARGUMENTS,
        f"lab.python={python} lab.inside={inside}",
        *machine.kernel_arguments,
    ]
    options = [kit.qemu, *kit.qemu_options, "-nodefaults", "-no-reboot", "-display", "none"]
    # With thread=multi, 3 of 6 boots on two slow CPUs failed: QEMU aborted (iotlb_to_section) or the guest hung. With
    # thread=single none of 6 did, and they took as long.
    options += ["-accel", "tcg,thread=single,tb-size=512", "-machine", "q35,hpet=off"]
    options += [
        "-cpu",
        CPU,
        "-smp",
        f"{machine.cpus},sockets={machine.packages},cores={machine.cores},threads={machine.threads}",
    ]
    options += ["-kernel", str(kit.kernel), "-initrd", str(kit.initramfs), "-append", " ".join(kernel_arguments)]
    # a stdio chardev whose input is closed would block the guest's output for ever
    options += ["-chardev", "file,id=console,path=/proc/self/fd/1,append=on", "-serial", "chardev:console"]
    options += _memory(machine)
    options += _share("host", Path("/"), "readonly=on,multidevs=remap,security_model=none")
    options += _share("sysroot", kit.sysroot, "readonly=on,security_model=none")
    options += _share("share", share, "security_model=none")
    options += [
        "-device",
        "virtio-serial-pci,bus=pcie.0,id=serial",
        "-chardev",
        f"socket,id=control,path={control},server=on,wait=off",
    ]
    options += ["-device", "virtserialport,bus=serial.0,chardev=control,name=lab"]
    if forward is not None:
        host, port = BACKEND
        options += ["-netdev", f"user,id=management,restrict=on,ipv6=off,guestfwd=tcp:{host}:{port}-cmd:{forward}"]
        options += ["-device", f"virtio-net-pci,bus=pcie.0,netdev=management,mac={MANAGEMENT_MAC},romfile="]
    options += _nics(machine, taps)
    if machine.interrupt_remapping:
        options += ["-device", "intel-iommu,intremap=on"]
    if machine.disk:
        options += ["-drive", "if=none,id=disk,file.driver=null-co,file.size=64M,format=raw"]
        options += ["-device", "nvme,bus=pcie.0,drive=disk,serial=lab"]
    for _ in range(machine.spare_controllers):
        options += ["-device", "virtio-serial-pci,bus=pcie.0,max_ports=31,vectors=64"]
    return options


def _memory(machine: Machine) -> list[str]:
    cpus, memory = machine.cpus // machine.numa_nodes, machine.memory_mib // machine.numa_nodes
    options = ["-m", str(memory * machine.numa_nodes)]
    for node in range(machine.numa_nodes):
        options += ["-object", f"memory-backend-ram,id=memory{node},size={memory}M"]
        options += ["-numa", f"node,nodeid={node},memdev=memory{node},cpus={node * cpus}-{(node + 1) * cpus - 1}"]
    for node in range(machine.numa_nodes):
        for other in range(machine.numa_nodes):
            if node < other:
                options += ["-numa", f"dist,src={node},dst={other},val=21"]
    return options


def _share(tag: str, path: Path, options: str) -> list[str]:
    return [
        "-fsdev",
        f"local,id={tag},path={path},{options}",
        "-device",
        f"virtio-9p-pci,bus=pcie.0,fsdev={tag},mount_tag={tag}",
    ]


def _nics(machine: Machine, taps: list[int]) -> list[str]:
    options: list[str] = []
    nodes = sorted({nic.numa_node for nic in machine.nics if nic.numa_node is not None})
    for node in nodes:
        options += ["-device", f"pxb-pcie,id=bridge{node},bus_nr={_FIRST_BUS * (node + 1)},bus=pcie.0,numa_node={node}"]
    left = list(taps)
    for number, nic in enumerate(machine.nics):
        backend, left = _backend(number, nic, left)
        options += ["-netdev", backend]
        bus = "pcie.0"
        if nic.numa_node is not None:
            options += ["-device", f"pcie-root-port,id=port{number},bus=bridge{nic.numa_node},chassis={number + 1}"]
            bus = f"port{number}"
        # two vectors a queue pair and two for configuration and control
        queues = f",mq=on,vectors={2 * nic.queues + 2}" if nic.queues > 1 else ""
        options += ["-device", f"{nic.model},netdev=nic{number},mac={mac(nic)},romfile=,bus={bus}{queues}"]
    return options


def _backend(number: int, nic: Nic, taps: list[int]) -> tuple[str, list[int]]:
    if not taps:
        return f"hubport,id=nic{number},hubid=0", taps
    mine, left = taps[: nic.queues], taps[nic.queues :]
    return f"tap,id=nic{number},fds={':'.join(map(str, mine))}", left
