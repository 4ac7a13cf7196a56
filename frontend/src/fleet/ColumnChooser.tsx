import { Button, Checkbox, Popover } from "@mantine/core";
import { METRICS } from "../api/metrics";
import { COLUMNS, type Column, shownColumns, toggleColumn } from "./columns";
import { FIGURES } from "./FleetTable";

const nameOf = (column: Column): string => {
  const figure = FIGURES.find(({ sort }) => sort === column);
  return figure === undefined ? (column === "cpus" ? "CPUs" : column) : METRICS[figure.column].short;
};

type Props = { columns: string | undefined; onChange: (columns: string | undefined) => void };

/** A button that opens the choice of the table's columns. */
export function ColumnChooser({ columns, onChange }: Props) {
  const shown = shownColumns(columns);
  return (
    <Popover trapFocus position="bottom-end" withinPortal>
      <Popover.Target>
        <Button>{columns === undefined ? "Columns" : `Columns (${shown.length} of ${COLUMNS.length})`}</Button>
      </Popover.Target>
      <Popover.Dropdown style={{ display: "grid", gap: 8 }}>
        {COLUMNS.map((column) => (
          <Checkbox
            key={column}
            label={nameOf(column)}
            checked={shown.includes(column)}
            disabled={shown.length === 1 && shown[0] === column}
            onChange={() => onChange(toggleColumn(columns, column))}
          />
        ))}
      </Popover.Dropdown>
    </Popover>
  );
}
