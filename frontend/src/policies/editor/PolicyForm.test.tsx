import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { applicationMetricsQuery } from "../../api/queries";
import { PolicyForm } from "./PolicyForm";
import { type Draft, newDraft, readBody } from "./policyDraft";

const DECLARED = [{ name: "checkout_p99", label: "Checkout, p99" }] as Schemas["ApplicationMetric"][];

function Form() {
  const [draft, setDraft] = useState((): Draft => {
    const draft = newDraft("irq-spread");
    return { ...draft, values: { ...draft.values, name: "calm" } };
  });
  return (
    <>
      <PolicyForm draft={draft} wrong={{}} onChange={setDraft} />
      <output>{readBody(draft).body?.proof?.metric}</output>
    </>
  );
}

test("the primary metric of a proof is one that nodes measure, or a declared application metric", async () => {
  const client = new QueryClient({ defaultOptions: { queries: { enabled: false } } });
  client.setQueryData(applicationMetricsQuery.queryKey, DECLARED);
  render(
    <MantineProvider>
      <QueryClientProvider client={client}>
        <Form />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const choice = screen.getByRole<HTMLSelectElement>("combobox", { name: "Primary metric" });
  expect(choice.selectedOptions[0]?.label).toBe("CPU per gigabit");
  await userEvent.selectOptions(choice, "Checkout, p99 (app.checkout_p99)");
  expect(screen.getByRole("status").textContent).toBe("app.checkout_p99");
});
