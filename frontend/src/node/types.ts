import type { Schemas } from "../api/client";

export type Inventory = NonNullable<Schemas["Node"]["inventory"]>;

export type Irq = Inventory["irqs"][number];

export type Netdev = Inventory["netdevs"][number];

export type Change = Schemas["Change"];

export type Topology = NonNullable<Schemas["Node"]["topology"]>;

export type Cpu = Topology["cpus"][number];
