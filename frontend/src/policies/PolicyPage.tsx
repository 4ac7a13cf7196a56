import { Button, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { ApiProblem, api, errorMessage, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { handleSignedOut, queryClient } from "../api/queries";
import { useRefusal } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { FormError } from "../components/FormError";
import { fieldErrors } from "../components/fieldErrors";
import { Managed } from "../components/Managed";
import { PageTop } from "../components/PageTop";
import { Tabs } from "../components/Tabs";
import { formSchemas } from "../forms/formSchemas";
import { SchemaInput } from "../forms/SchemaField";
import { Approvals } from "./approvals/Approvals";
import { isWaiting as waitsForApproval } from "./approvals/shown";
import { Backtest } from "./backtest/Backtest";
import { PolicyForm } from "./editor/PolicyForm";
import { PreviewPane } from "./editor/PreviewPane";
import { type Draft, draftOf, readBody } from "./editor/policyDraft";
import { kindLabel, modeHelp } from "./kinds";
import { NodesTab } from "./overview/NodesTab";
import { OverviewTab } from "./overview/OverviewTab";
import { State } from "./overview/State";
import styles from "./policies.module.css";
import { describeDisabling, movesMemory, versionsInForce } from "./policyState";
import { ProofLine } from "./proof/ProofLine";
import { policiesQuery, policyQuery, versionsQuery } from "./queries";
import { Rollouts } from "./rollouts/Rollouts";
import type { PolicySearch, Tab } from "./search";
import type { Policy, PolicyBody, PolicyVersion } from "./types";
import { Versions } from "./versions/Versions";

const route = getRouteApi("/shell/policies/$policyId");

/** One policy: what it did, its nodes, versions, rollouts and backtest, and its form with a live preview. */
export function PolicyPage() {
  const { policyId } = route.useParams();
  const policy = useQuery(policyQuery(policyId));
  const versions = useQuery(versionsQuery(policyId));
  const error = policy.error ?? versions.error;
  if (policy.data !== undefined && versions.data !== undefined)
    return <LoadedPolicy key={policyId} policy={policy.data} versions={versions.data} />;
  if (error === null)
    return (
      <p className="muted" role="status">
        Loading the policy.
      </p>
    );
  const missing = error instanceof ApiProblem && error.status === 404;
  return (
    <section className="card" role="alert">
      <h2>{missing ? "Policy not found" : "This policy cannot be shown"}</h2>
      <div className="body">
        <p>{errorMessage(error)}</p>
        <Link to="/policies">Back to the policies</Link>
      </div>
    </section>
  );
}

function LoadedPolicy({ policy, versions }: { policy: Policy; versions: PolicyVersion[] }) {
  const search = route.useSearch();
  const go = route.useNavigate();
  const navigate = (change: Partial<PolicySearch>) =>
    void go({ search: (before) => ({ ...before, ...change }), replace: !("tab" in change), resetScroll: false });
  const isOperator = useRefusal("", policy.body.selector.labels) === null;
  const newest = versions[0]?.version ?? policy.version;
  const base = versions.find((one) => one.version === search.version) ?? versions[0];
  const saved = useMemo(() => draftOf(base?.body ?? policy.body), [base, policy.body]);
  // Edits are stored for each version, so that selecting another version loses none.
  const [edits, setEdits] = useState<Record<number, Draft>>({});
  const from = base?.version ?? policy.version;
  const draft = edits[from] ?? saved;
  const reading = useMemo(() => readBody(draft), [draft]);
  const changed = edits[from] !== undefined && JSON.stringify(edits[from]) !== JSON.stringify(saved);
  const tab = search.tab ?? "overview";
  const nodes = policy.in_force.reduce((sum, one) => sum + one.nodes, 0);
  const tabs: { value: Tab; label: string; count?: number }[] = [
    { value: "overview", label: "Overview" },
    { value: "nodes", label: "Nodes", count: nodes },
    { value: "versions", label: "Versions", count: policy.versions },
    { value: "rollout", label: rolloutLabel(policy) },
    { value: "backtest", label: "Backtest" },
    { value: "edit", label: "Edit" },
  ];
  return (
    <>
      <PageTop title={`${policy.name} · Policies`}>
        <nav aria-label="Breadcrumb">
          <Link to="/policies">Policies</Link> <span className="muted">/</span>
        </nav>
        <h1>{policy.name}</h1>
        <span className="tag">{kindLabel(policy.body.spec.type)}</span>
        <span className="tag" title={modeHelp(policy.body.mode)}>
          {policy.body.mode}
        </span>
        {policy.enabled ? (
          versionsInForce(policy).map((words) => (
            <span key={words} className={`tag ${words.includes(",") ? styles.rolling : ""}`}>
              {words}
            </span>
          ))
        ) : (
          <span className="tag">
            v{policy.version} of {policy.versions}
          </span>
        )}
        <Managed kind="Policy" id={policy.id} />
      </PageTop>
      <Approvals policyId={policy.id} />
      <State policy={policy}>
        <ProofLine policy={policy} label={search.label} />
      </State>
      <div className={styles.tabs}>
        <Tabs label="Parts of the policy" value={tab} tabs={tabs} />
        {changed && <span className="tag warn">edited from v{from}, not saved</span>}
      </div>
      {isWaiting(policy, newest) && tab !== "rollout" && tab !== "edit" && (
        <p className={styles.next}>
          <NextStep version={newest} />
        </p>
      )}
      {tab === "edit" && (
        <div className={styles.columns}>
          <div className={styles.form}>
            {from !== newest && (
              <p className={styles.note}>
                Edited from version {from}; the latest is {newest}.{" "}
                <button type="button" className="link" onClick={() => navigate({ version: undefined })}>
                  Edit the latest
                </button>
              </p>
            )}
            <Save
              policy={policy}
              next={newest + 1}
              draft={draft}
              reading={reading}
              changed={changed || from !== newest}
              onChange={(next) => {
                setEdits((before) => ({ ...before, [from]: next }));
                if (search.version !== from) navigate({ version: from }); // a newer one does not replace what is edited
              }}
              onSaved={() => {
                setEdits(({ [from]: _, ...others }) => others);
                navigate({ version: undefined });
              }}
            />
            {isOperator && <Deletion policy={policy} />}
          </div>
          <PreviewPane draft={draft} chosen={search.nodes} onChoose={(nodes) => navigate({ nodes })} />
        </div>
      )}
      {tab === "nodes" && <NodesTab policyId={policy.id} />}
      {tab === "overview" && <OverviewTab policy={policy} versions={versions} search={search} navigate={navigate} />}
      {tab === "versions" && <Versions policy={policy} versions={versions} search={search} navigate={navigate} />}
      {tab === "rollout" && <Rollouts policy={policy} versions={versions} search={search} navigate={navigate} />}
      {tab === "backtest" && (
        <Backtest
          policy={policy}
          versions={versions}
          edited={changed ? reading.body : null}
          search={search}
          navigate={navigate}
        />
      )}
    </>
  );
}

/** Whether the newest version is in force nowhere and nothing brings it there. */
const isWaiting = ({ version, in_force, rollout }: Policy, newest: number): boolean =>
  newest !== version && rollout === null && in_force.every((one) => one.version !== newest);

/** What to do with a version that is saved and nothing more. */
function NextStep({ version }: { version: number }) {
  return (
    <>
      Version {version} is saved, but in force on no node.{" "}
      <Link to="." search={(before) => ({ ...before, tab: "rollout", version })}>
        Roll out version {version}
      </Link>
    </>
  );
}

/** The label of the tab about rollouts: `Rollout 2 of 4` while one is unfinished. */
function rolloutLabel({ rollout }: Policy): string {
  return rollout === null ? "Rollout" : `Rollout ${rollout.stage + 1} of ${rollout.stages.length}`;
}

type SaveProps = {
  policy: Policy;
  next: number;
  draft: Draft;
  reading: ReturnType<typeof readBody>;
  changed: boolean;
  onChange: (draft: Draft) => void;
  onSaved: () => void;
};

function Save({ policy, next, draft, reading, changed, onChange, onSaved }: SaveProps) {
  const ofPolicy = useRefusal("Saving", policy.body.selector.labels);
  const refusal = useRefusal("Saving", reading.body?.selector.labels ?? policy.body.selector.labels) ?? ofPolicy;
  const [note, setNote] = useState("");
  const save = useMutation({
    mutationFn: (body: PolicyBody) =>
      unwrap(
        api.POST("/api/v1/policies/{policy_id}/versions", {
          params: { path: { policy_id: policy.id } },
          body: { body, note },
        }),
      ),
    onError: handleSignedOut,
    onSuccess: async () => {
      await queryClient.invalidateQueries({ queryKey: policiesQuery.queryKey });
      setNote("");
      onSaved();
    },
  });
  const wrong = fieldErrors(reading.wrong, save.error);
  return (
    <form
      className={styles.form}
      aria-label="Policy"
      onSubmit={(event) => {
        event.preventDefault();
        if (reading.body !== null && changed) save.mutate(reading.body);
      }}
    >
      <PolicyForm
        kindIsFixed
        draft={draft}
        wrong={wrong}
        onChange={(edited) => {
          save.reset();
          onChange(edited);
        }}
      />
      <section className={`card ${styles.saving}`}>
        <div className={`body ${styles.save}`}>
          <TextInput
            label="Note"
            placeholder="purpose of this version"
            maxLength={BOUNDS.PolicyVersionCreate.note.maxLength}
            value={note}
            onChange={(event) => setNote(event.currentTarget.value)}
          />
          <Button
            type="submit"
            variant="filled"
            disabled={refusal !== null || !changed || reading.body === null}
            loading={save.isPending}
          >
            Save as version {next}
          </Button>
          <span className="muted" role="status">
            {!changed && isWaiting(policy, next - 1) ? (
              <NextStep version={next - 1} />
            ) : refusal !== null ? (
              refusal
            ) : policy.enabled ? (
              `Saving changes no node: version ${policy.version} stays in force until version ${next} is rolled out.`
            ) : (
              "Saving changes no node: the policy is disabled."
            )}
          </span>
          <FormError error={save.error} fields={Object.keys(wrong).map((path) => path.split(".").at(-1) ?? path)} />
        </div>
      </section>
    </form>
  );
}

/** Deletes the policy, after its name is typed. */
function Deletion({ policy }: { policy: Policy }) {
  const [confirming, setConfirming] = useState(false);
  const [leavePages, setLeavePages] = useState("");
  const go = route.useNavigate();
  const remove = useMutation({
    mutationFn: () =>
      unwrap(
        api.DELETE("/api/v1/policies/{policy_id}", {
          params: { path: { policy_id: policy.id }, query: { leave_pages: leavePages === "true" } },
        }),
      ),
    onError: handleSignedOut,
    onSuccess: async (outcome) => {
      if (waitsForApproval(outcome)) {
        setConfirming(false);
        return queryClient.invalidateQueries({ queryKey: policiesQuery.queryKey });
      }
      await go({ to: "/policies" });
      queryClient.removeQueries({ queryKey: policyQuery(policy.id).queryKey });
      await queryClient.invalidateQueries({ queryKey: policiesQuery.queryKey, exact: true });
    },
  });
  const schema = formSchemas().rollout.properties?.leave_pages;
  return (
    <p className={styles.note}>
      <button type="button" className="link bad" onClick={() => setConfirming(true)}>
        Delete the policy…
      </button>
      {confirming && (
        <ConfirmDialog
          title={`Delete ${policy.name}`}
          action="Delete"
          typed={policy.name}
          pending={remove.isPending}
          error={remove.error}
          onConfirm={() => remove.mutate()}
          onClose={() => setConfirming(false)}
        >
          <p>
            The policy and its versions are deleted permanently; its decisions stay on the nodes' pages.{" "}
            {policy.enabled && describeDisabling(policy).replace("Disabling", "Deleting")}
          </p>
          {movesMemory(policy) && schema !== undefined && (
            <SchemaInput schema={schema} value={leavePages} onChange={setLeavePages} />
          )}
        </ConfirmDialog>
      )}
    </p>
  );
}
