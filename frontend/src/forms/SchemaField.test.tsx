import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import { SchemaFields } from "./SchemaField";
import type { Schema } from "./schema";
import { type Errors, readObject, valuesOf } from "./values";

const SCHEMA: Schema = {
  type: "object",
  properties: {
    dwell_s: { type: "number", minimum: 0, maximum: 60, default: 30, title: "Dwell time", unit: "s" },
    level: { type: "string", enum: ["l2", "l3"], enum_labels: { l2: "shared L2" }, default: "l2", title: "Cache" },
    isolated: { type: "boolean", default: false, title: "Use isolated CPUs", group: "advanced" },
  },
};

type FormProps = { schema?: Schema; onRead: (value: unknown) => void };

function Form({ schema = SCHEMA, onRead }: FormProps) {
  const [values, setValues] = useState(() => valuesOf(schema, undefined, "spec"));
  const errors: Errors = {};
  onRead(readObject(schema, "spec", values, errors));
  return (
    <MantineProvider>
      <SchemaFields
        schema={schema}
        path="spec"
        values={values}
        errors={errors}
        onChange={(path, value) => setValues({ ...values, [path]: value })}
      />
    </MantineProvider>
  );
}

test("a form is rendered from a schema alone, with labels, bounds, options and advanced fields", async () => {
  let read: unknown;
  render(
    <Form
      onRead={(value) => {
        read = value;
      }}
    />,
  );
  const dwell = screen.getByLabelText("Dwell time, s");
  await userEvent.clear(dwell);
  await userEvent.type(dwell, "90");
  expect(screen.getByText("A number from 0 to 60.")).toBeTruthy();
  await userEvent.clear(dwell);
  await userEvent.type(dwell, "45");
  expect(screen.getByRole("option", { name: "shared L2" })).toBeTruthy();
  await userEvent.selectOptions(screen.getByLabelText("Cache"), "l3");
  const isolated = screen.getByLabelText("Use isolated CPUs");
  expect(isolated.closest("details")?.open).toBe(false);
  await userEvent.click(isolated);
  expect(read).toEqual({ dwell_s: 45, level: "l3", isolated: true });
});

const NESTED: Schema = {
  type: "object",
  properties: { damping: { type: "object", group: "advanced", properties: { dwell_s: { type: "number" } } } },
};

test.each<[Errors, boolean]>([
  [{}, false],
  [{ "damping_of_another.dwell_s": "A number." }, false],
  [{ "damping.dwell_s": "A number." }, true],
])("with the errors %o, the advanced group is open: %s", (errors, open) => {
  render(<SchemaFields schema={NESTED} path="" values={{}} errors={errors} onChange={() => undefined} />, {
    wrapper: MantineProvider,
  });
  expect(screen.getByText("Advanced").closest("details")?.open).toBe(open);
});

test("the advanced group stays open while a number in it is typed anew", async () => {
  const damping = { type: "number", minimum: 0, default: 30, title: "Damping", group: "advanced" } as const;
  render(<Form schema={{ type: "object", properties: { damping } }} onRead={() => undefined} />);
  await userEvent.click(screen.getByText("Advanced"));
  const field = screen.getByLabelText("Damping");
  await userEvent.clear(field);
  await userEvent.type(field, "120");
  expect(field.closest("details")?.open).toBe(true);
});
