import { Button, Input } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, errorMessage, unwrap } from "../api/client";
import { QUICK_MEAN_RUN_S } from "../api/constants";
import { handleSignedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { FormError } from "../components/FormError";
import { fieldErrors } from "../components/fieldErrors";
import { PageTop } from "../components/PageTop";
import { Segments } from "../components/Segments";
import { FormPart } from "../experiments/form/FormPart";
import { SchemaFields, SchemaInput } from "../forms/SchemaField";
import { splitWords } from "../forms/values";
import layoutStyles from "../policies/policies.module.css";
import { applyStudy, estimateQuery, studiesQuery, studyQuery } from "./queries";
import { SchemePicker } from "./SchemePicker";
import styles from "./simulation.module.css";
import { firstStudyError, readStudy, studySchema, studyValues } from "./studyForm";
import { TracePicker } from "./TracePicker";
import type { Spec } from "./types";

const route = getRouteApi("/shell/simulations/new");
const TYPING_MS = 300;

/** The form of a new coscheduling study. */
export function NewStudyPage() {
  const { from } = route.useSearch();
  const again = useQuery({ ...studyQuery(from ?? 0), enabled: from !== undefined });
  return (
    <>
      <PageTop title="New study">
        <nav aria-label="Breadcrumb">
          <Link to="/simulations">Studies</Link> <span className="muted">/</span>
        </nav>
        <h1>New study</h1>
      </PageTop>
      {again.isError && (
        <p className="bad" role="alert">
          {errorMessage(again.error)}
        </p>
      )}
      {from !== undefined && again.isPending ? (
        <p className="muted">Loading study {from}.</p>
      ) : (
        <StudyForm key={from} spec={again.data?.spec} />
      )}
    </>
  );
}

/** Mean ideal run times of the two scales; the full one is the default. */
const scales = () =>
  [
    { value: String(QUICK_MEAN_RUN_S), label: "quick" },
    { value: String(studySchema("parameters.mean_run_s").default), label: "full" },
  ] as const;

function StudyForm({ spec }: { spec: Spec | undefined }) {
  const navigate = route.useNavigate();
  const isOperator = useHasRole("operator");
  const unavailable = useQuery(studiesQuery()).data?.unavailable_because ?? null;
  const [values, setValues] = useState(() => studyValues(spec));
  const reading = useMemo(() => readStudy(values), [values]);
  const [settled] = useDebouncedValue(reading.spec, TYPING_MS);
  const estimate = useQuery(estimateQuery(settled));
  const start = useMutation({
    mutationFn: (wanted: Spec) => unwrap(api.POST("/api/v1/simulations", { body: { spec: wanted } })),
    onError: handleSignedOut,
    onSuccess: async (study) => {
      applyStudy(study);
      await navigate({ to: "/simulations/$studyId", params: { studyId: study.id } });
    },
  });
  const wrong = Object.fromEntries(
    Object.entries(fieldErrors(reading.wrong, start.error)).map(([path, sentence]) => [
      path.replace(/^spec\./, ""),
      sentence,
    ]),
  );
  const why = !isOperator
    ? "Starting a study requires the operator role."
    : (unavailable ?? (reading.wrong === null ? null : firstStudyError(reading.wrong)));
  const change = (path: string, value: string) => {
    start.reset();
    setValues({ ...values, [path]: value });
  };
  const input = (path: string) => (
    <SchemaInput
      schema={studySchema(path)}
      value={values[path] ?? ""}
      error={wrong[path]}
      onChange={(value) => change(path, value)}
    />
  );
  return (
    <form
      className={styles.form}
      aria-label="Study"
      onSubmit={(event) => {
        event.preventDefault();
        if (reading.spec !== null && why === null) start.mutate(reading.spec);
      }}
    >
      <section className="card" aria-label="Schemes">
        <h2>
          Schemes <small>+RO: with reordering</small>
        </h2>
        <SchemePicker
          chosen={splitWords(values.schemes ?? "")}
          error={wrong.schemes}
          onChange={(schemes) => change("schemes", schemes.join(" "))}
        />
      </section>
      <FormPart title="Jobs">
        {input("patterns")}
        {input("job_types")}
        {input("imbalances")}
        {input("seeds")}
        <TracePicker value={values.trace ?? ""} error={wrong.trace} onChange={(name) => change("trace", name)} />
      </FormPart>
      <FormPart title="Machine and scale" note="defaults are assumptions: the paper states no constant">
        <Input.Wrapper
          className={styles.whole}
          size="xs"
          label="Scale"
          labelElement="div"
          description="The mean ideal run time of a job."
          descriptionProps={{ mb: 4 }}
        >
          <Segments
            label="Scale"
            value={values["parameters.mean_run_s"] ?? null}
            options={scales()}
            onChange={(value) => change("parameters.mean_run_s", value)}
          />
        </Input.Wrapper>
        <SchemaFields
          schema={studySchema("parameters")}
          path="parameters"
          values={values}
          errors={wrong}
          onChange={change}
        />
        <div className={styles.whole}>{input("sensitivity")}</div>
      </FormPart>
      <section className={`card ${layoutStyles.saving}`} aria-label="Start">
        <div className={`body ${layoutStyles.save}`}>
          <Button type="submit" variant="filled" disabled={why !== null} loading={start.isPending}>
            Start
          </Button>
          <span className={why === null ? "muted" : "warn"} role="status">
            {why ?? (estimate.error === null ? estimate.data?.sentence : errorMessage(estimate.error))}
          </span>
          <FormError error={start.error} fields={Object.keys(wrong).map((path) => `spec.${path}`)} />
        </div>
      </section>
    </form>
  );
}
