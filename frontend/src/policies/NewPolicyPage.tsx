import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "../api/client";
import { handleSignedOut, queryClient } from "../api/queries";
import { useRefusal } from "../auth/me";
import { FormError } from "../components/FormError";
import { fieldErrors } from "../components/fieldErrors";
import { PageTop } from "../components/PageTop";
import { PolicyForm } from "./editor/PolicyForm";
import { PreviewPane } from "./editor/PreviewPane";
import { newDraft, prefilled, readBody } from "./editor/policyDraft";
import { kindNames } from "./kinds";
import styles from "./policies.module.css";
import { policiesQuery } from "./queries";
import type { Kind, PolicyBody } from "./types";

const route = getRouteApi("/shell/policies/new");

/** The form of a new policy with a live preview. */
export function NewPolicyPage() {
  const search = route.useSearch();
  const { kind, nodes, hostname, exclude } = search;
  const navigate = route.useNavigate();
  const [draft, setDraft] = useState(() =>
    prefilled(newDraft(kindNames().find((name) => name === kind) ?? (kindNames()[0] as Kind)), {
      "selector.hostnames": hostname,
      "spec.exclude": exclude,
    }),
  );
  const [tried, setTried] = useState(false);
  const reading = readBody(draft);
  const refusal = useRefusal("Creating a policy", reading.body?.selector.labels);
  const create = useMutation({
    mutationFn: (body: PolicyBody) => unwrap(api.POST("/api/v1/policies", { body })),
    onError: handleSignedOut,
    onSuccess: async (policy) => {
      await queryClient.invalidateQueries({ queryKey: policiesQuery.queryKey });
      await navigate({ to: "/policies/$policyId", params: { policyId: policy.id }, search: { nodes } });
    },
  });
  const wrong = fieldErrors(reading.wrong, create.error);
  const { name, ...others } = wrong;
  return (
    <>
      <PageTop title="New policy">
        <nav aria-label="Breadcrumb">
          <Link to="/policies">Policies</Link> <span className="muted">/</span>
        </nav>
        <h1>New policy</h1>
      </PageTop>
      <div className={styles.columns}>
        <form
          className={styles.form}
          aria-label="Policy"
          onSubmit={(event) => {
            event.preventDefault();
            setTried(true);
            if (reading.body !== null) create.mutate(reading.body);
          }}
        >
          <PolicyForm
            draft={draft}
            wrong={name !== undefined && (tried || draft.values.name !== undefined) ? wrong : others}
            onChange={setDraft}
          />
          <section className={`card ${styles.saving}`}>
            <div className={`body ${styles.save}`}>
              <Button type="submit" variant="filled" disabled={refusal !== null} loading={create.isPending}>
                Create policy
              </Button>
              <span className="muted">
                {refusal !== null
                  ? refusal
                  : draft.values.mode === "observe"
                    ? "It takes effect at once: nodes show its result, and nothing is changed."
                    : "It starts disabled: no node changes until it is enabled or rolled out."}
              </span>
              <FormError error={create.error} fields={Object.keys(wrong)} />
            </div>
          </section>
        </form>
        <PreviewPane
          draft={draft}
          chosen={nodes}
          onChoose={(chosen) =>
            void navigate({ search: { ...search, nodes: chosen }, replace: true, resetScroll: false })
          }
        />
      </div>
    </>
  );
}
