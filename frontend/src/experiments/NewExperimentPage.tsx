import { Button } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, errorMessage, unwrap } from "../api/client";
import { changeQuery, fleetQuery, handleSignedOut, nodeQuery, nodeSummaryQuery } from "../api/queries";
import { useIsSomeOperator } from "../auth/me";
import { FormError } from "../components/FormError";
import { fieldErrors } from "../components/fieldErrors";
import { NodePicker } from "../components/NodePicker";
import { HealthDot, SimulatedTagOf } from "../components/NodeTags";
import { PageTop } from "../components/PageTop";
import { formatCount } from "../lib/format";
import layoutStyles from "../policies/policies.module.css";
import styles from "./experiments.module.css";
import { PreviewPane, useSpecPreview } from "./form/PreviewPane";
import { SpecForm } from "./form/SpecForm";
import { type Draft, draftOf, draftOfChange, draftOfSettings, firstError, newDraft, readSpec } from "./form/specDraft";
import { TemplateList } from "./form/TemplateList";
import { applyExperimentUpdate, experimentQuery, templatesQuery } from "./queries";
import { confirmationOf } from "./results/tune/tuneActions";
import type { NewExperimentSearch } from "./search";
import type { SpecIn, Template } from "./types";

const MAX_CHOICES = 24;
const route = getRouteApi("/shell/experiments/new");

/** The form of a new experiment: node, template, specification and live preview. */
export function NewExperimentPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const copied = search.confirm ?? search.from;
  const source = useQuery({ ...experimentQuery(copied ?? 0), enabled: copied !== undefined });
  const again = source.data;
  const first = useQuery(fleetQuery({ limit: 1 })).data;
  const only = first?.nodes === 1 ? first.rows[0]?.id : undefined;
  const nodeId = search.node ?? again?.node_id ?? only;
  const node = useQuery({ ...nodeSummaryQuery(nodeId ?? 0), enabled: nodeId !== undefined }).data ?? undefined;
  // those of another node stay until they are there: the form would be lost
  const templates = useQuery({ ...templatesQuery(nodeId), placeholderData: keepPreviousData });
  const template = templates.data?.find(({ slug }) => slug === search.template);
  const changed = useQuery({ ...changeQuery(search.change ?? ""), enabled: search.change !== undefined });
  const change = changed.data;
  const failure = source.error ?? changed.error;
  const begun =
    search.change !== undefined && change === undefined
      ? false
      : copied === undefined
        ? search.template === "own" || !!template?.spec
        : again !== undefined && nodeId !== undefined;
  return (
    <>
      <PageTop title="New experiment">
        <nav aria-label="Breadcrumb">
          <Link to="/experiments">Experiments</Link> <span className="muted">/</span>
        </nav>
        <h1>New experiment</h1>
      </PageTop>
      <section className={`card ${styles.node}`} aria-label="Node">
        <NodePicker
          label={node === undefined ? "Node" : "Another node"}
          placeholder="by name"
          onPick={(id) => void navigate({ search: { ...search, node: id } })}
        />
        {node === undefined ? (
          <p className="muted">The node to measure. Its templates follow.</p>
        ) : (
          <p>
            <HealthDot health={node.health} />
            <Link to="/nodes/$nodeId" params={{ nodeId: node.id }}>
              {node.name}
            </Link>{" "}
            <SimulatedTagOf nodeId={node.id} />{" "}
            <span className="muted">
              {[node.cpus === null ? null : formatCount(node.cpus, "CPU"), node.kernel].filter(Boolean).join(" · ")}
            </span>
          </p>
        )}
      </section>
      {failure !== null && (
        <p className="bad" role="alert">
          {errorMessage(failure)}
        </p>
      )}
      {(source.isLoading || changed.isLoading) && <p className="muted">Loading what the experiment begins with.</p>}
      {first !== undefined && nodeId === undefined && copied === undefined && <NodeChoice search={search} />}
      {nodeId !== undefined && copied === undefined && (
        <>
          {templates.isError && (
            <p className="bad" role="alert">
              {errorMessage(templates.error)}
            </p>
          )}
          <TemplateList
            templates={templates.data}
            chosen={search.template}
            folded={begun}
            onChoose={(slug) => void navigate({ search: { node: nodeId, template: slug }, resetScroll: false })}
          />
        </>
      )}
      {nodeId !== undefined && begun && !(copied === undefined && templates.isPending) && (
        <Composer
          key={`${search.template} ${copied} ${search.confirm} ${search.change} ${search.settings}`}
          nodeId={nodeId}
          template={template}
          isLoading={template !== undefined && templates.isPlaceholderData}
          initial={() => {
            const spec =
              search.confirm !== undefined && again ? confirmationOf(again) : (again?.spec ?? template?.spec);
            if (spec) return draftOf(spec);
            if (search.settings !== undefined) return draftOfSettings(search.settings);
            return change === undefined ? newDraft("ab") : draftOfChange(change.plan.actions);
          }}
        />
      )}
    </>
  );
}

/** Links to the first nodes that an experiment can use: live ones, and machines before simulated nodes. */
function NodeChoice({ search }: { search: NewExperimentSearch }) {
  const machines = useQuery(fleetQuery({ q: "health:live simulated:no", limit: MAX_CHOICES })).data;
  const simulated = useQuery(fleetQuery({ q: "health:live simulated:yes", limit: MAX_CHOICES })).data;
  if (machines === undefined || simulated === undefined) return <p className="muted">Loading nodes.</p>;
  const live = [...machines.rows, ...simulated.rows].slice(0, MAX_CHOICES);
  const total = machines.totals.nodes + simulated.totals.nodes;
  if (live.length === 0) return <p className="muted">No node is live. An experiment needs one.</p>;
  return (
    <section className="card" aria-label="Live nodes">
      <h2>
        Live nodes{" "}
        <small>{total > MAX_CHOICES ? `the first ${MAX_CHOICES} of ${total.toLocaleString("en")}` : total}</small>
      </h2>
      <ul className={styles.choices}>
        {live.map(({ id, name, health, cpus, kernel }) => (
          <li key={id}>
            <HealthDot health={health} />
            <Link to="/experiments/new" search={{ ...search, node: id }}>
              {name}
            </Link>{" "}
            <SimulatedTagOf nodeId={id} />{" "}
            <span className="muted">
              {[cpus === null ? null : formatCount(cpus, "CPU"), kernel].filter(Boolean).join(" · ")}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

type ComposerProps = {
  nodeId: number;
  template: Template | undefined;
  /** The template is still that of another node. */
  isLoading: boolean;
  initial: () => Draft;
};

function Composer({ nodeId, template, isLoading, initial }: ComposerProps) {
  const navigate = route.useNavigate();
  const isOperator = useIsSomeOperator();
  const node = useQuery(nodeQuery(nodeId)).data;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a template has other values for another node
  const unedited = useMemo(initial, [template]);
  const [edited, setEdited] = useState<Draft | null>(null); // what is edited stays when another node is chosen
  const draft = edited ?? unedited;
  const [tried, setTried] = useState(false);
  const reading = useMemo(() => readSpec(draft, nodeId), [draft, nodeId]);
  const preview = useSpecPreview(reading.spec);
  const start = useMutation({
    mutationFn: (spec: SpecIn) => unwrap(api.POST("/api/v1/experiments", { body: { spec } })),
    onError: handleSignedOut,
    onSuccess: async (experiment) => {
      applyExperimentUpdate(experiment);
      await navigate({ to: "/experiments/$experimentId", params: { experimentId: experiment.id } });
    },
  });
  const refused = start.variables?.node_id === nodeId ? start.error : null;
  const wrong = fieldErrors(reading.wrong, refused ?? preview.error);
  const why = !isOperator
    ? "Starting an experiment requires the operator role."
    : isLoading && edited === null
      ? "The template of this node is loading."
      : reading.spec === null
        ? firstError(reading.wrong)
        : preview.data === undefined
          ? preview.error === null
            ? "The preview is loading."
            : errorMessage(preview.error)
          : preview.data.blocked_because;
  return (
    <div className={layoutStyles.columns}>
      <form
        className={layoutStyles.form}
        aria-label="Experiment"
        onSubmit={(event) => {
          event.preventDefault();
          setTried(true);
          if (reading.spec !== null && why === null) start.mutate(reading.spec);
        }}
      >
        <SpecForm
          draft={draft}
          node={node}
          wrong={wrong}
          showMissing={tried}
          onChange={(next) => {
            start.reset();
            setEdited(next);
          }}
        />
        <section className={`card ${layoutStyles.saving}`} aria-label="Start">
          <div className={`body ${layoutStyles.save}`}>
            <Button type="submit" variant="filled" disabled={why !== null || preview.old} loading={start.isPending}>
              Start
            </Button>
            <span className={why === null ? "muted" : "warn"} role="status">
              {why ?? "It starts when no other experiment uses the node; all settings are restored after each run."}
            </span>
            <FormError error={refused} fields={Object.keys(wrong)} />
          </div>
        </section>
      </form>
      <PreviewPane preview={preview} differs={template?.differs ?? []} fits={reading.spec !== null} />
    </div>
  );
}
