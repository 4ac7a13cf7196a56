import { Menu } from "@mantine/core";
import { useRef, useState } from "react";
import { errorMessage } from "../api/client";
import { pictureOf, pngOf } from "../charts/picture";

type Range = { from: number; to: number };

/** name: of the chart, and range: its times, for the file's name; csv: its data; both called when the user chooses. Null: no data yet. */
type Props = { name: string; range?: () => Range | null; csv: (() => string) | null };

const fileTime = (ms: number) => `${new Date(ms).toISOString().slice(0, 19).replaceAll(":", "")}Z`;

/** A file's name: what it shows and the times in UTC, `web-1-rtt-2026-11-22T081240Z-2026-11-22T081740Z.csv`. */
export function fileName(name: string, { from, to }: Range, ending: string): string {
  const times = from === to ? [to] : [from, to];
  return `${name.replace(/[^\w.-]+/g, "-").toLowerCase()}-${times.map(fileTime).join("-")}.${ending}`;
}

function save(blob: Blob, file: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = file;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** A menu that saves the chart or heatmap of its card as PNG or SVG, as shown, or its data as CSV. */
export function ExportMenu({ name, range, csv }: Props) {
  const button = useRef<HTMLButtonElement>(null);
  const [error, setError] = useState<string | null>(null);
  const picture = () => {
    const card = button.current?.closest(".card");
    return card ? pictureOf(card) : "";
  };
  const file = (ending: string) => {
    const now = Date.now();
    return fileName(name, range?.() ?? { from: now, to: now }, ending);
  };
  const savePng = async () => {
    try {
      save(await pngOf(picture()), file("png"));
      setError(null);
    } catch (problem) {
      setError(errorMessage(problem));
    }
  };
  return (
    <>
      {error !== null && (
        <small className="bad" role="alert">
          {error}
        </small>
      )}
      <Menu position="bottom-end" withinPortal disabled={csv === null}>
        <Menu.Target>
          <button ref={button} type="button" className="link" disabled={csv === null} aria-label={`Export ${name}`}>
            export
          </button>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => void savePng()}>PNG</Menu.Item>
          <Menu.Item onClick={() => save(new Blob([picture()], { type: "image/svg+xml" }), file("svg"))}>SVG</Menu.Item>
          <Menu.Item onClick={() => save(new Blob([csv?.() ?? ""], { type: "text/csv" }), file("csv"))}>CSV</Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </>
  );
}
