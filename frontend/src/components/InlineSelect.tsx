import { NativeSelect, type NativeSelectProps } from "@mantine/core";
import { useId } from "react";
import styles from "./inlineSelect.module.css";

type Props = Pick<NativeSelectProps, "data" | "value" | "onChange"> & { label: string };

/** A select with its label to the left of it, for the bar above a page's contents. */
export function InlineSelect({ label, ...select }: Props) {
  const id = useId();
  return (
    <span className={styles.pair}>
      <label htmlFor={id}>{label}</label>
      <NativeSelect id={id} {...select} />
    </span>
  );
}
