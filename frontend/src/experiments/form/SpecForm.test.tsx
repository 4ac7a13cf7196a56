import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import { SpecForm } from "./SpecForm";
import { draftOfChange } from "./specDraft";

function Form() {
  const [draft, setDraft] = useState(() => draftOfChange([{ key: "irq/41/affinity", was: "2", becomes: "4" }]));
  return (
    <>
      <SpecForm draft={draft} node={undefined} wrong={{}} showMissing={false} onChange={setDraft} />
      <output>{`${draft.primary} ${draft.tune["tune.latency"]}`}</output>
    </>
  );
}

test("the second metric of a tune differs from the primary one", async () => {
  const client = new QueryClient({ defaultOptions: { queries: { enabled: false } } });
  render(
    <MantineProvider>
      <QueryClientProvider client={client}>
        <Form />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const metrics = () => document.querySelector("output")?.textContent;
  expect(metrics()).toBe("rtt_p99_us rtt_p99_us");
  await userEvent.click(screen.getByText("Tune"));
  expect(metrics()).toBe("rtt_p99_us cpu_softirq_percent");
  await userEvent.selectOptions(screen.getByLabelText("Metric"), "cpu_softirq_percent");
  expect(metrics()).toBe("cpu_softirq_percent rtt_p50_us");
});
