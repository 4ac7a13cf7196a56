import { CONTROLLED } from "../api/constants";

const PATTERNS: Record<string, string> = CONTROLLED;
const SUBJECTS = {
  "irq/1/affinity": "interrupts",
  "task/1/affinity": "processes",
  "task/1/memory-nodes": "memory of processes",
};

/** Those of a node's controllers, such as irqbalance, that may change a setting; one without a pattern changes any. */
export const controllersOf = (key: string, controllers: string[]): string[] =>
  controllers.filter((name) => new RegExp(`^(?:${PATTERNS[name] ?? ""})`).test(key));

/** What a controller moves: `processes, memory of processes`. */
export const movedBy = (controller: string): string =>
  Object.entries(SUBJECTS)
    .flatMap(([key, subject]) => (controllersOf(key, [controller]).length > 0 ? [subject] : []))
    .join(", ");
