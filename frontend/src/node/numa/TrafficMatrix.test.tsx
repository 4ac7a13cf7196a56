import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { entry, machine } from "../testData";
import { TrafficMatrix } from "./TrafficMatrix";

test.each([
  [1, /without 1 process of unknown memory$/],
  [2, /without 2 processes of unknown memory$/],
])("of %d processes of unknown memory the matrix says that it is without them", (count, text) => {
  const unknown = entry({ bytes_by_node: null, unknown: "No permission.", cpu_share: 0.2 });
  render(
    <TrafficMatrix
      nodes={machine({ packages: 1, nodesEach: 1, cachesEach: 1, coresEach: 1, threads: 1 }).numa_nodes}
      traffic={[{ from_node: 0, to_node: 0, cpus: 1, bytes_per_s: null }]}
      entries={Array.from({ length: count }, () => unknown)}
      trafficUnknown={null}
    />,
    { wrapper: MantineProvider },
  );
  expect(screen.getByText(text)).toBeTruthy();
});
