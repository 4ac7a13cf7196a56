import { Button, NativeSelect } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, errorMessage, unwrap } from "../../api/client";
import { handleSignedOut } from "../../api/queries";
import { useIsSomeOperator } from "../../auth/me";
import { CopyField } from "../../components/CopyField";
import { Moment } from "../../components/Moment";
import { Segments } from "../../components/Segments";
import experimentsStyles from "../experiments.module.css";
import { experimentsQuery } from "../queries";
import type { Experiment } from "../types";
import styles from "./results.module.css";

const FORMATS = { html: "HTML", pdf: "PDF", csv: "CSV", json: "JSON", md: "Markdown" };
const LANGUAGES = [
  { value: "en", label: "English" },
  { value: "ko", label: "Korean", title: "한국어" },
] as const;
type Language = (typeof LANGUAGES)[number]["value"];

/** A public link to the report, and a comparison with another experiment. */
export function CompareAndShare({ experiment }: { experiment: Experiment }) {
  return (
    <section className="card" aria-label="Compare and share">
      <h2>Compare and share</h2>
      <div className={`body ${styles.exports}`}>
        <Compare experiment={experiment} />
        <Share id={experiment.id} />
      </div>
    </section>
  );
}

type LinksProps = { label: string; address: (format: string, language: string) => string };

/** Links to a report in each format, with the choice of its language. */
export function ReportLinks({ label, address }: LinksProps) {
  const [language, setLanguage] = useState<Language>("en");
  return (
    <section className={styles.formats} aria-label={`Report of ${label}`}>
      <b>Report</b>
      {Object.entries(FORMATS).map(([format, name]) => (
        <a
          key={format}
          className={styles.button}
          href={address(format, language)}
          aria-label={`${name} report of ${label}`}
          {...(format === "html" ? { target: "_blank", rel: "noreferrer" } : { download: true })}
        >
          {name}
        </a>
      ))}
      <Segments
        label={`Language of the report of ${label}`}
        value={language}
        options={LANGUAGES}
        onChange={setLanguage}
      />
    </section>
  );
}

function Compare({ experiment }: { experiment: Experiment }) {
  const [other, setOther] = useState("");
  const page = useQuery(experimentsQuery({})).data;
  const others = page?.experiments.filter(({ id }) => id !== experiment.id) ?? [];
  return (
    <div className={styles.compare}>
      <NativeSelect
        label="Compare with"
        value={other}
        data={[
          { value: "", label: others.length === 0 ? "no other experiment" : "another experiment" },
          ...others.map((one) => ({ value: String(one.id), label: `${one.id}: ${one.name} on ${one.node_name}` })),
        ]}
        onChange={(event) => setOther(event.currentTarget.value)}
      />
      {other !== "" && (
        <ReportLinks
          label="both experiments"
          address={(format, language) =>
            `/api/v1/reports/compare?a=${experiment.id}&b=${other}&format=${format}&language=${language}`
          }
        />
      )}
    </div>
  );
}

const DAYS = [1, 7, 30, 365];

/** A public link to the report. */
function Share({ id }: { id: number }) {
  const isOperator = useIsSomeOperator();
  const [days, setDays] = useState(30);
  const params = { path: { experiment_id: id } };
  const share = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/experiments/{experiment_id}/share", { params, body: { days } })),
    onError: handleSignedOut,
  });
  const end = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/experiments/{experiment_id}/share", { params })),
    onError: handleSignedOut,
    onSuccess: () => share.reset(),
  });
  const error = share.error ?? end.error;
  return (
    <div className={styles.share}>
      <div className={experimentsStyles.row}>
        <NativeSelect
          label="Public link, valid for"
          value={String(days)}
          data={DAYS.map((value) => ({ value: String(value), label: value === 1 ? "1 day" : `${value} days` }))}
          onChange={(event) => setDays(Number(event.currentTarget.value))}
        />
        <Button
          disabled={!isOperator}
          loading={share.isPending}
          onClick={() => {
            end.reset();
            share.mutate();
          }}
        >
          Create link
        </Button>
        <Button disabled={!isOperator} loading={end.isPending} onClick={() => end.mutate()}>
          Revoke all links
        </Button>
      </div>
      {!isOperator && <p className="muted">Sharing a report needs the operator role.</p>}
      <div role="status">
        {share.data !== undefined && (
          <>
            <CopyField text={new URL(share.data.url, location.href).href} label="link" />
            <p className="muted">
              Anyone with this link can read the report until <Moment at={share.data.expires_at} />. The link is shown
              only once.
            </p>
          </>
        )}
        {end.isSuccess && <p className="muted">All links to this report are revoked.</p>}
      </div>
      {error !== null && (
        <p className="bad" role="alert">
          {errorMessage(error)}
        </p>
      )}
    </div>
  );
}
