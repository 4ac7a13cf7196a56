"""Maintains the inventory at low cost: devices, queues, interrupts and other controllers."""

import struct
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from coresteer_agent.collect import interrupts, irq, netdev
from coresteer_agent.collect.boot_files import read_boot_settings
from coresteer_agent.collect.conditions import read_conditions
from coresteer_agent.collect.controllers import changed_ksoftirqd, find_controllers, find_processes
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_text
from coresteer_agent.collect.reserved import ReservedReader
from coresteer_agent.collect.rows import dropped_rows, value_or_none
from coresteer_agent.collect.vectors import read_free_vectors
from coresteer_agent.linux.addresses import read_addresses_by_netdev
from coresteer_agent.observe import netdev_settings, queues
from coresteer_agent.observe.queue_users import QueueUserReader, XdpState, find_queue_users, read_user_space_devices
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import (
    MAX_ADDRESSES,
    MAX_HELD,
    MAX_NETDEVS,
    BootSetting,
    FlowRuleTable,
    FreeVectors,
    Inventory,
    Irq,
    Netdev,
    Queue,
    QueueUser,
    RssContext,
)
from coresteer_core.node.limits import Limits
from coresteer_core.node.rates import FIRST_LABEL_ID, Rates
from coresteer_core.settings import MACHINE_SETTINGS, FlowRuleSlot, RssContextTable, Setting, SettingError
from coresteer_core.settings.kernel import kernel_controllers
from coresteer_core.settings.location import (
    FlowRuleLocation,
    IrqLocation,
    MachineLocation,
    ParamsLocation,
    QueueCpusLocation,
    QueuesLocation,
    RssContextLocation,
)

_SWEEP_CALLS = 28
"""Number of calls within which every affinity, device and steering mask is read again.

Fewer than _STRUCTURE_CALLS, as the sweep begins anew then.
"""
_STRUCTURE_CALLS = 30
"""Number of calls after which interrupts, devices, queues and controllers are listed again."""
_MAX_MOVED_AT_ONCE = 64


class InventoryReader:
    """Maintains the inventory of the machine below root; call read() about once a second.

    The first read() reads everything. Each later one reads one in 28 of the files again, and in addition

    - the affinity of interrupts that arrived on a CPU outside their known effective affinity (they were moved),
      according to the Rates;
    - the list of devices and interrupts, after rescan(), every thirtieth call, and when the Rates contain an unknown
      interrupt;
    - settings given to reread() after an attempt to write them; for an interrupt also whether it can be moved: one
      that the kernel refused to move is locked.

    The result is the same object as before if nothing changed. An invalid value is None, and among the dropped rows.

    management: set it to the netdevs that carry the agent's connection, none for a backend on the same machine; until
    then, the netdev of the default route stands in. limits, changed_settings, held: set them to those of the node.
    own: set it to the flow rules and RSS contexts that Coresteer added, values by key.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.management: frozenset[str] | None = None
        self.limits = Limits()
        self.changed_settings: int | None = None
        self.held: dict[str, str] | None = None
        self.own: Mapping[str, Collection[str]] = {}
        self._calls = 0
        self._rescan = True
        self._changed_params: set[str] = set()
        self._inventory: Inventory | None = None
        self._composed_for: tuple[object, ...] = ()
        self._sweep: deque[Callable[[], bool]] = deque()
        self._dropped_rows: dict[str, str] = {}
        self._controllers: list[str] = []
        self._queue_user_reader = QueueUserReader(root)
        self._queue_users: list[QueueUser] = []
        self._free_vectors: list[FreeVectors] = []
        self._boot_settings: list[BootSetting] = []
        self._default_routes: frozenset[str] = frozenset()
        self._addresses: dict[str, list[str]] = {}
        self._descriptions: dict[int, interrupts.Description] = {}
        self._movable: dict[int, irq.Movability] = {}
        self._numa_nodes: dict[int, int | None] = {}
        self._affinities: dict[int, irq.Affinity] = {}
        self._effective: dict[int, frozenset[int]] = {}
        self._devices: dict[str, netdev.Device] = {}
        self._maps: dict[str, queues.DeviceIrqs] = {}
        self._mapped: dict[str, tuple[queues.MapInputs, queues.DeviceIrqs]] = {}
        self._steering: dict[tuple[str, str], queues.QueueFiles] = {}
        self._scaling: dict[str, netdev_settings.EthtoolSettings] = {}
        self._machine_settings: dict[str, str] = {}
        self._conditions: dict[str, str] = {}
        self._reserved = ReservedReader(root)

    def rescan(self) -> None:
        """Make the next read() list devices and interrupts again, e.g. after a hot-plug."""
        self._rescan = True

    def reread(self, settings: Iterable[Setting]) -> None:
        """Read the values of settings again, parameters of netdevs and queues at the next read()."""
        for setting in settings:
            if self._reread_setting(setting):
                self._inventory = None

    def _reread_setting(self, setting: Setting) -> bool:
        match setting.location:
            case IrqLocation(number) if number in self._affinities:
                movable = irq.read_movable(self._root, number)
                changed = movable != self._movable[number]
                self._movable[number] = movable
                return self._reread_irq(number) or changed
            case QueueCpusLocation(name, queue) if (name, queue) in self._steering:
                return self._reread_steering(name, queue)
            case QueuesLocation(name):
                self._rescan = True  # queues and interrupts may have changed
                self._changed_params.add(name)
            case ParamsLocation(name) | FlowRuleLocation(name) | RssContextLocation(name):
                self._changed_params.add(name)
            case MachineLocation(key):
                return self._reread_machine_setting(key)
        return False

    def read(self, rates: Rates | None = None) -> Inventory:
        """Return the present inventory; the same object if nothing changed. rates: of the last interval."""
        moved, unknown = self._find_moved(rates)
        if self._reserved.update():
            self._inventory = None
        if self._rescan or unknown or self._calls % _STRUCTURE_CALLS == 0:
            self._rescan = True  # also after an error in the middle of it
            self._read_structure()
            self._rescan = False
        else:
            for _ in range(-(-len(self._sweep) // _SWEEP_CALLS)):
                if self._sweep[0]():
                    self._inventory = None
                self._sweep.rotate(-1)
            for number in moved:
                if number in self._affinities and self._reread_irq(number):
                    self._inventory = None
            for name in self._changed_params & self._maps.keys():
                if self._reread_params(name):
                    self._inventory = None
        self._changed_params.clear()
        self._calls += 1
        composed_for = (self.management, self.limits, self.changed_settings, self.held, dict(self.own))
        dropped = dropped_rows()
        if self._inventory is None or self._composed_for != composed_for or dropped != self._dropped_rows:
            self._composed_for, self._dropped_rows = composed_for, dropped
            self._inventory = self._compose()
        return self._inventory

    def _find_moved(self, rates: Rates | None) -> tuple[list[int], bool]:
        """Return interrupts counted on a CPU outside their known affinity, and whether there are unknown ones."""
        if rates is None or rates.irq_ids is None or rates.irq_cpus is None:
            return [], False
        count = len(rates.irq_ids) // 4
        cells = zip(
            struct.unpack(f"<{count}I", rates.irq_ids), struct.unpack(f"<{count}H", rates.irq_cpus), strict=True
        )
        effective = self._effective
        moved: set[int] = set()
        unknown = False
        for number, cpu in cells:
            known = effective.get(number)
            if known is None:
                unknown = unknown or (number < FIRST_LABEL_ID and number not in self._descriptions)
            elif cpu not in known:
                moved.add(number)
        return sorted(moved)[:_MAX_MOVED_AT_ONCE], unknown

    def _read_structure(self) -> None:
        """List devices and interrupts, and read the values of new ones."""
        root = self._root
        descriptions = interrupts.read_descriptions(root)
        if descriptions is None:
            descriptions = {n: interrupts.Description("", "") for n in irq.irq_numbers(root)}
        for number in [n for n in self._affinities if descriptions.get(n) != self._descriptions.get(n)]:
            # the number may belong to another device now, so its values are not valid
            del self._affinities[number], self._movable[number], self._numa_nodes[number]
            self._effective.pop(number, None)
        self._descriptions = descriptions
        for number in descriptions.keys() - self._affinities.keys():
            self._movable[number] = irq.read_movable(root, number)
            self._numa_nodes[number] = value_or_none(irq.read_numa_node, root, number)
            self._reread_irq(number)
        processes = find_processes(root)
        self._controllers = find_controllers(root, processes)
        self._conditions = read_conditions(root)
        if (nice := changed_ksoftirqd(root, processes)) is not None:
            self._conditions["ksoftirqd"] = nice
        self._free_vectors = read_free_vectors(root)
        self._reserved.update(again=True)
        self._default_routes = value_or_none(netdev.read_default_routes, root) or frozenset()
        self._addresses = read_addresses_by_netdev() if irq.is_running_kernel(root) else {}
        self._read_devices()
        ifindexes = {name: (value_or_none(netdev.read_ifindex, root, name), self._maps[name]) for name in self._maps}
        state = value_or_none(self._queue_user_reader.read_xdp) or XdpState()
        self._queue_users = find_queue_users(state, ifindexes, read_user_space_devices(root, descriptions))
        nics = {name: index for name, (index, _) in ifindexes.items() if index and self._devices[name].bus_names}
        self._boot_settings = read_boot_settings(root, nics)
        for key in MACHINE_SETTINGS:
            self._reread_machine_setting(key)
        self._sweep = deque(
            [partial(self._reread_irq, n) for n in sorted(self._affinities)]
            + [partial(self._reread_device, name) for name in self._devices]
            + [partial(self._reread_steering, name, queue) for name, queue in self._steering]
            + [partial(self._reread_machine_setting, key) for key in MACHINE_SETTINGS]
        )
        current = self._compose()
        if current != self._inventory:
            self._inventory = current

    def _read_devices(self) -> None:
        root = self._root
        netlink_queues = value_or_none(queues.read_netlink_queues, root) or {}
        irq_names = {n: d.name for n, d in self._descriptions.items()}
        before, self._devices, self._maps = self._steering, {}, {}
        mapped, self._mapped = self._mapped, {}
        self._steering = {}
        names = netdev.netdev_names(root)
        self._scaling = value_or_none(netdev_settings.read_ethtool_settings, root, names, self._scaling) or {}
        for name in names:
            self._reread_device(name)
            device = self._devices.get(name)
            if device is None:
                continue
            ifindex = value_or_none(netdev.read_ifindex, root, name)
            found = queues.queue_names(root, name)
            asked = (
                device,
                found,
                irq_names if device.bus_names else {},
                queues.read_msi_irqs(root, device),
                netlink_queues.get(ifindex, {}) if ifindex is not None else {},
            )
            known = mapped.get(name)
            # hundreds of names are compared with the device's; they rarely change
            answer = known[1] if known is not None and known[0] == asked else queues.map_queues_to_irqs(*asked)
            self._mapped[name] = asked, answer
            self._maps[name] = answer
            for queue in found:
                if (name, queue) in before and name not in self._changed_params:
                    self._steering[name, queue] = before[name, queue]
                else:
                    self._reread_steering(name, queue)

    def _reread_params(self, name: str) -> bool:
        """Read the parameters of a netdev and its queues again; a write to the netdev changes both."""
        before = self._netdev(self._devices[name])
        self._reread_device(name)
        self._scaling |= value_or_none(netdev_settings.read_ethtool_settings, self._root, [name], self._scaling) or {}
        ifindex = value_or_none(netdev.read_ifindex, self._root, name)
        netlink_queues = (value_or_none(queues.read_netlink_queues, self._root) or {}).get(ifindex or 0, {})
        mapped = self._maps[name]
        for queue in mapped.queues:
            self._reread_steering(name, queue)
        served = {
            queue: replace(found, params=netlink_queues[queue].params if queue in netlink_queues else {})
            for queue, found in mapped.queues.items()
        }
        self._maps[name] = replace(mapped, queues=served)
        return self._netdev(self._devices[name]) != before

    def _reread_irq(self, number: int) -> bool:
        current = value_or_none(irq.read_affinity, self._root, number) or irq.Affinity(None, None)
        if current == self._affinities.get(number):
            return False
        self._affinities[number] = current
        if (cpus := current.effective or current.requested) is not None:
            self._effective[number] = parse_cpu_list(cpus)
        else:
            self._effective.pop(number, None)
        return True

    def _reread_device(self, name: str) -> bool:
        current = value_or_none(netdev.read_device, self._root, name)
        if current is None or current == self._devices.get(name):
            return False
        self._devices[name] = current
        return True

    def _reread_steering(self, name: str, queue: str) -> bool:
        current = value_or_none(queues.read_steering, self._root, name, queue) or queues.QueueFiles()
        changed = (name, queue) not in self._steering or current != self._steering[name, queue]
        self._steering[name, queue] = current
        return changed

    def _reread_machine_setting(self, key: str) -> bool:
        setting = MACHINE_SETTINGS[key]
        before = self._machine_settings.pop(key, None)
        value = value_or_none(_read_machine_setting, self._root, setting)
        if value is not None:
            self._machine_settings[key] = value
        return value != before

    def _compose(self) -> Inventory:
        served: dict[int, list[str]] = {}
        owner: dict[int, str] = {}
        for name, device_irqs in self._maps.items():
            owner.update(dict.fromkeys(device_irqs.irqs, name))
            for queue, found in device_irqs.queues.items():
                if found.irq is not None:
                    served.setdefault(found.irq, []).append(queue)
        return Inventory(
            netdevs=[self._netdev(device) for device in self._devices.values()],
            irqs=[
                self._with_user(
                    Irq(
                        irq=number,
                        name=description.name,
                        chip=description.chip,
                        requested=self._affinities[number].requested,
                        effective=self._affinities[number].effective,
                        numa_node=self._numa_nodes[number],
                        movable=self._movable[number].movable,
                        locked_reason=self._movable[number].reason,
                        netdev=owner.get(number),
                        queues=served.get(number, []),
                    )
                )
                for number, description in sorted(self._descriptions.items())
            ],
            controllers=[*self._controllers, *kernel_controllers(self._machine_settings)],
            settings=dict(sorted(self._machine_settings.items())),
            conditions=self._conditions,
            limits=self.limits,
            dropped_rows=self._dropped_rows,
            changed_settings=self.changed_settings,
            held=self.held if len(self.held or ()) <= MAX_HELD else None,
            queue_users=self._queue_users,
            free_vectors=self._free_vectors,
            reserved=self._reserved.cpus,
            boot_settings=self._boot_settings,
        )

    def _with_user(self, found: Irq) -> Irq:
        """Lock an interrupt that a queue user has; one that cannot be moved anyway keeps that reason."""
        user = next((user for user in self._queue_users if user.uses(found)), None)
        if user is None or found.movable is False:
            return found
        return replace(found, movable=False, locked_reason=user.sentence)

    def _netdev(self, device: netdev.Device) -> Netdev:
        scaling = self._scaling.get(device.name, netdev_settings.EthtoolSettings())
        return Netdev(
            name=device.name,
            driver=device.driver,
            speed_bits_per_s=device.speed_bits_per_s,
            mtu=device.mtu,
            numa_node=device.numa_node,
            up=device.up,
            virtual=not device.bus_names,
            management=device.name in (self._default_routes if self.management is None else self.management),
            queues=[
                Queue(
                    name=queue,
                    irq=found.irq,
                    source=found.source,
                    napi_id=found.napi_id,
                    rps=steering.cpus if queue.startswith("rx-") else None,
                    xps=steering.cpus if queue.startswith("tx-") else None,
                    params=scaling.queues.get(queue, {}) | found.params | steering.params,
                )
                for queue, found in self._maps[device.name].queues.items()
                for steering in (self._steering.get((device.name, queue), queues.QueueFiles()),)
            ],
            channels=scaling.channels,
            channels_max=scaling.channels_max,
            rss=scaling.rss,
            params=scaling.params | device.polling,
            params_max=scaling.params_max,
            addresses=self._addresses.get(device.name, [])[:MAX_ADDRESSES],
            firmware=scaling.firmware,
            rss_entries=scaling.rss_entries,
            flow_rules=None if scaling.flow_rules is None else self._with_owners(device.name, scaling.flow_rules),
            rss_contexts=self._owned_contexts(device.name, scaling.rss_contexts),
            lower=device.lower[:MAX_NETDEVS],
        )

    def _with_owners(self, name: str, table: FlowRuleTable) -> FlowRuleTable:
        rules = [
            replace(rule, ours=bool(rule.text) and rule.text in own) if own else rule
            for rule in table.rules
            for own in (self.own.get(FlowRuleSlot(name, rule.location).key),)
        ]
        return replace(table, rules=rules)

    def _owned_contexts(self, name: str, contexts: list[RssContext] | None) -> list[RssContext] | None:
        if contexts is None:
            return None
        own = {each.number: self.own.get(RssContextTable(name, each.number).key, ()) for each in contexts}
        return [replace(each, ours=each.rss in own[each.number]) for each in contexts]


def _read_machine_setting(root: Path, setting: Setting) -> str | None:
    """Return the value of a machine-wide setting; None if the node does not have it. Raises ParseError."""
    location = setting.location
    text = read_text(root, location.path) if isinstance(location, MachineLocation) else None
    if text is None:
        return None
    try:
        return setting.canonical(text)
    except SettingError as error:
        raise ParseError(setting.key, 1, str(error)) from None
