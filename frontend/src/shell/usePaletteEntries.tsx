import { useMantineColorScheme } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMatch, useNavigate } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { fleetQuery, nodeQuery } from "../api/queries";
import { useHasRole, useIsSomeOperator } from "../auth/me";
import { entryStatusWords } from "../changes/state";
import { titleWords } from "../changes/words";
import { HealthDot, SimulatedTag } from "../components/NodeTags";
import { experimentsQuery } from "../experiments/queries";
import { formatCount } from "../lib/format";
import { policiesQuery } from "../policies/queries";
import { simulatedNodesQuery, useStartSimulation } from "../settings/simulatedNodes";
import { PAGES, SETTINGS_SECTIONS } from "./pages";
import type { Group } from "./paletteSearch";
import { useSignOut } from "./signOut";

/** An entry of the palette. text: what is searched and shown; label replaces it where it is shown. */
export type Entry = {
  group: Group;
  key: string;
  text: string;
  label?: ReactNode;
  hint?: string;
  go: () => unknown;
};

const PAGE_TARGETS = [...PAGES.filter(({ to }) => to !== "/settings"), ...SETTINGS_SECTIONS];
const LIVE_SPAN_S = 300;
const TYPING_MS = 150;
const MAX_NODES = 50;
const MAX_TERMS = 10;

const changesQuery = {
  queryKey: ["changes", "palette"],
  queryFn: () => unwrap(api.GET("/api/v1/changes/log", { params: { query: { limit: 50 } } })),
};

/** The node whose CPUs and interrupts are offered: that of the page, else the one named in the query, else the only one. */
function useNodeInQuestion(typed: string): Schemas["Node"] | undefined {
  const onPage = useMatch({ from: "/shell/nodes/$nodeId", shouldThrow: false })?.params.nodeId;
  const terms = typed.split(/\s+/).filter(Boolean).slice(0, MAX_TERMS);
  const named = useQuery({ ...fleetQuery({ name: terms, limit: 1 }), enabled: terms.length > 0 }).data?.rows[0]?.id;
  const first = useQuery(fleetQuery({ limit: 1 })).data;
  const id = named ?? onPage ?? (first?.nodes === 1 ? first.rows[0]?.id : undefined);
  return useQuery({ ...nodeQuery(id ?? 0), enabled: id !== undefined }).data;
}

/** The actions of the palette that the user's role and the open page allow. */
function useActions(): Entry[] {
  const navigate = useNavigate();
  const isOperator = useIsSomeOperator();
  const isAdmin = useHasRole("admin");
  const node = useMatch({ from: "/shell/nodes/$nodeId", shouldThrow: false });
  const opened = useQuery({ ...nodeQuery(node?.params.nodeId ?? 0), enabled: node !== undefined }).data;
  const { setColorScheme } = useMantineColorScheme();
  const signOut = useSignOut();
  const simulated = useQuery({ ...simulatedNodesQuery, enabled: isAdmin }).data;
  const start = useStartSimulation();
  const action = (text: string, go: () => unknown, hint?: string): Entry => ({
    ...{ group: "Actions", key: text, text, go },
    ...(hint !== undefined && { hint }),
  });
  const onNode = (search: { from: number | undefined; to: number | undefined }) =>
    navigate({ to: ".", search: (before: object) => ({ ...before, ...search }) });
  const pause = () => {
    const to = Math.round(Date.now() + (opened?.clock_skew_ms ?? 0)); // samples have the node's time
    return onNode({ from: to - (node?.search.span ?? LIVE_SPAN_S) * 1000, to });
  };
  return [
    ...(node === undefined
      ? []
      : node.search.from === undefined
        ? [action("Pause", pause, "Space")]
        : [action("Return to live", () => onNode({ from: undefined, to: undefined }), "Space")]),
    ...(isOperator
      ? [
          action("New policy", () => navigate({ to: "/policies/new" })),
          action("New experiment", () => navigate({ to: "/experiments/new", search: { node: node?.params.nodeId } })),
        ]
      : []),
    ...(isAdmin
      ? [
          action("Add a node", () => navigate({ to: "/settings/nodes" })),
          action("Stop enforcement…", () => navigate({ to: "/changes", search: { stop: "ask" } })),
        ]
      : []),
    ...(simulated?.unavailable_because === null && !simulated.running
      ? [
          action("Simulate a fleet", () => {
            start.mutate();
            return navigate({ to: "/fleet" });
          }),
        ]
      : []),
    ...(simulated !== undefined && (simulated.running || simulated.nodes > 0)
      ? [action("Remove simulated nodes…", () => navigate({ to: "/settings/nodes" }))]
      : []),
    action("Theme: dark", () => setColorScheme("dark")),
    action("Theme: light", () => setColorScheme("light")),
    action("Theme: as the system", () => setColorScheme("auto")),
    action("Password and sessions", () => navigate({ to: "/account" })),
    action("Sign out", () => signOut.mutate()),
  ];
}

/** Everything that the palette reaches. typed: may name the node whose CPUs and interrupts are meant. */
export function usePaletteEntries(typed: string): Entry[] {
  const navigate = useNavigate();
  const [settled] = useDebouncedValue(typed.trim(), TYPING_MS);
  const nodes = useQuery({
    ...fleetQuery({ q: settled, limit: MAX_NODES }),
    placeholderData: keepPreviousData,
  }).data?.rows;
  const policies = useQuery(policiesQuery).data;
  const experiments = useQuery(experimentsQuery({})).data?.experiments;
  const changes = useQuery(changesQuery).data?.entries;
  const node = useNodeInQuestion(settled);
  const actions = useActions();
  const ofNodes = useMemo(
    () =>
      (nodes ?? []).map(
        (one): Entry => ({
          ...{ group: "Nodes", key: `node ${one.id}`, text: one.name },
          label: (
            <>
              <HealthDot health={one.health} />
              {one.name} {one.simulated && <SimulatedTag />}
            </>
          ),
          go: () => navigate({ to: "/nodes/$nodeId", params: { nodeId: one.id } }),
        }),
      ),
    [nodes, navigate],
  );
  const others = useMemo((): Entry[] => {
    const open = (nodeId: number, sel: string) =>
      navigate({ to: "/nodes/$nodeId", params: { nodeId }, search: { sel } });
    return [
      ...PAGE_TARGETS.map(
        ({ to, label }): Entry => ({
          ...{ group: "Pages", key: to, text: label },
          go: () => navigate({ to }),
        }),
      ),
      ...(policies ?? []).map(
        ({ id, name }): Entry => ({
          ...{ group: "Policies", key: `policy ${id}`, text: name },
          go: () => navigate({ to: "/policies/$policyId", params: { policyId: id } }),
        }),
      ),
      ...(experiments ?? []).map(
        ({ id, name, node_name, state }): Entry => ({
          ...{ group: "Experiments", key: `experiment ${id}`, text: `${name} ${node_name}`, hint: state },
          go: () => navigate({ to: "/experiments/$experimentId", params: { experimentId: id } }),
        }),
      ),
      ...(changes ?? []).map((entry): Entry => {
        const { id, node_name, created_by } = entry.change;
        const { what, values } = titleWords(entry.change);
        const where = entry.nodes > 1 ? formatCount(entry.nodes, "node") : node_name;
        const said = entry.changes > 1 ? `${formatCount(entry.changes, "move")} of ${created_by}` : `${what} ${values}`;
        const hint = `${created_by}, ${entryStatusWords(entry).text}`;
        return {
          ...{ group: "Changes", key: `change ${id}`, text: `${said} ${where}`, hint },
          go: () => navigate({ to: "/changes", search: { change: id, span: "7d" } }),
        };
      }),
      ...(node?.inventory?.irqs ?? []).map(
        ({ irq, name }): Entry => ({
          ...{ group: "IRQs", key: `irq ${irq}`, text: `IRQ ${irq} ${name} ${node?.name}` },
          go: () => open(node?.id ?? 0, `irq:${irq}`),
        }),
      ),
      ...(node?.topology?.cpus ?? []).map(
        ({ cpu }): Entry => ({
          ...{ group: "CPUs", key: `cpu ${cpu}`, text: `CPU ${cpu} ${node?.name}` },
          go: () => open(node?.id ?? 0, `cpu:${cpu}`),
        }),
      ),
    ];
  }, [policies, experiments, changes, node, navigate]);
  return [...ofNodes, ...actions, ...others];
}
