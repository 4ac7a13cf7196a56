import { Button, NativeSelect, Textarea, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { applicationMetricsQuery, handleSignedOut, queryClient } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { FormError, fieldError } from "../components/FormError";
import { NodeSelect } from "../components/NodePicker";
import { RowsTable } from "../components/RowsTable";
import { Unknown } from "../components/Unknown";
import styles from "./settings.module.css";

type Metric = Schemas["ApplicationMetric"];
type Body = Schemas["ApplicationMetricCreate"];

/** What is typed: the floor is a number only once it is sent. */
type Draft = Omit<Body, "floor"> & { floor: string };

const EMPTY = { name: "", label: "", unit: "", better: "less", url: "", query: "", floor: "" } satisfies Draft;
const TEXTS = [
  { field: "name", label: "Name", placeholder: "checkout_p99", required: true, w: 160 },
  { field: "label", label: "Label", placeholder: "Checkout, p99", required: true, w: 220 },
  { field: "unit", label: "Unit", placeholder: "s", required: false, w: 80 },
  { field: "url", label: "Prometheus server", placeholder: "http://prometheus:9090", required: true, w: 300 },
] as const;
const refetch = () => queryClient.invalidateQueries({ queryKey: applicationMetricsQuery.queryKey });

function NewMetric() {
  const [body, setBody] = useState<Draft>(EMPTY);
  const create = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/application-metrics", { body: { ...body, floor: Number(body.floor.replace(",", ".")) } }),
      ),
    onError: handleSignedOut,
    onSuccess: () => {
      setBody(EMPTY);
      return refetch();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate();
  };
  return (
    <form className={styles.form} onSubmit={submit}>
      {TEXTS.map(({ field, label, placeholder, required, w }) => (
        <TextInput
          key={field}
          label={label}
          placeholder={placeholder}
          required={required}
          maxLength={BOUNDS.ApplicationMetricCreate[field].maxLength}
          autoComplete="off"
          w={w}
          value={body[field]}
          error={fieldError(create.error, field)}
          onChange={(event) => setBody({ ...body, [field]: event.currentTarget.value })}
        />
      ))}
      <NativeSelect
        label="Better"
        data={[
          { value: "less", label: "less" },
          { value: "more", label: "more" },
          { value: "", label: "neither" },
        ]}
        value={body.better}
        onChange={(event) => setBody({ ...body, better: event.currentTarget.value as Body["better"] })}
      />
      <TextInput
        label="Smallest value that counts"
        title="In proofs it stands for smaller values and for 0, which have no ratio; below what matters, and above 0."
        placeholder="0.001"
        required
        inputMode="decimal"
        autoComplete="off"
        w={180}
        value={body.floor}
        error={fieldError(create.error, "floor")}
        onChange={(event) => setBody({ ...body, floor: event.currentTarget.value })}
      />
      <Textarea
        label="Query"
        description="{{node}} is the node's name, {{range}} the length of the measured time."
        placeholder={'sum(rate(http_requests_total{instance=~"{{node}}:.*"}[30s]))'}
        required
        autosize
        maxLength={BOUNDS.ApplicationMetricCreate.query.maxLength}
        style={{ flexBasis: "100%" }}
        classNames={{ input: "mono" }}
        value={body.query}
        error={fieldError(create.error, "query")}
        onChange={(event) => setBody({ ...body, query: event.currentTarget.value })}
      />
      <Button type="submit" variant="filled" loading={create.isPending}>
        Declare
      </Button>
      <FormError error={create.error} fields={["name", "label", "unit", "url", "query", "floor"]} />
    </form>
  );
}

/** Reads a metric for a node of the last five minutes; a missing value is hatched, with the reason. */
function Try({ metric }: { metric: Metric }) {
  const read = useMutation({
    mutationFn: (node: number) =>
      unwrap(
        api.POST("/api/v1/application-metrics/{metric_id}/nodes/{node_id}/reading", {
          params: { path: { metric_id: metric.id, node_id: node } },
        }),
      ),
    onError: handleSignedOut,
  });
  const { data: reading } = read;
  return (
    <div role="status">
      <NodeSelect
        hidesLabel
        label={`Try ${metric.name} on a node`}
        none="try on a node"
        nodeId={read.variables}
        onChange={(id) => (id === undefined ? read.reset() : read.mutate(id))}
      />
      {read.isError && <p className="bad">{errorMessage(read.error)}</p>}
      {reading !== undefined && reading.value !== null && (
        <p>
          {reading.value} {metric.unit} <span className="muted">in the last 5 min</span>
        </p>
      )}
      {reading !== undefined && reading.value === null && <p className="muted">Missing: {reading.reason}</p>}
    </div>
  );
}

function Delete({ metric, onClose }: { metric: Metric; onClose: () => void }) {
  const remove = useMutation({
    mutationFn: () =>
      unwrap(api.DELETE("/api/v1/application-metrics/{metric_id}", { params: { path: { metric_id: metric.id } } })),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      return refetch();
    },
  });
  return (
    <ConfirmDialog
      title={`Delete the application metric “${metric.name}”`}
      action="Delete"
      pending={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>Past results keep it. Its name cannot be used again.</p>
    </ConfirmDialog>
  );
}

/** Settings section of application metrics: Prometheus queries that experiments and guardrails may use. */
export function ApplicationMetricsSection() {
  const isAdmin = useHasRole("admin");
  const mayRead = useHasRole("operator");
  const metrics = useQuery(applicationMetricsQuery);
  const [deleting, setDeleting] = useState<Metric | null>(null);
  return (
    <section className="card">
      <h2>
        Application metrics <small>Prometheus queries that experiments and guardrails may use</small>
      </h2>
      <div className="body">
        {isAdmin ? <NewMetric /> : <p className="muted">Declaring application metrics needs the admin role.</p>}
      </div>
      <RowsTable
        rows={metrics}
        label="application metrics"
        columns={["name", "label", "better", "counts from", "server and query", "value"]}
      >
        {(metric) => (
          <tr>
            <td className="mono">{metric.name}</td>
            <td>{metric.unit === "" ? metric.label : `${metric.label}, ${metric.unit}`}</td>
            <td>{metric.better || "–"}</td>
            <td>{metric.floor ?? <Unknown why="It was declared without a floor: 0 does not count in proofs." />}</td>
            <td>
              <span className="muted">{metric.url}</span>
              <br />
              <code>{metric.query}</code>
            </td>
            <td>{mayRead && <Try metric={metric} />}</td>
            <td>
              {isAdmin && (
                <Button onClick={() => setDeleting(metric)} aria-label={`Delete ${metric.name}`}>
                  Delete
                </Button>
              )}
            </td>
          </tr>
        )}
      </RowsTable>
      {deleting !== null && <Delete metric={deleting} onClose={() => setDeleting(null)} />}
    </section>
  );
}
