import type { Schemas } from "../api/client";

/** By the number that the API uses. */
export const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"] as const;

/** The time of a change window: `Mon–Thu 22:00–05:00`, `daily 01:00–02:00`, `Sat, Sun 00:00–00:00`. */
export function windowTime({ weekdays, start, end }: Pick<Schemas["ChangeWindow"], "weekdays" | "start" | "end">) {
  const runs: number[][] = [];
  for (const day of weekdays) {
    const last = runs.at(-1);
    if (last?.at(-1) === day - 1) last.push(day);
    else runs.push([day]);
  }
  const name = (day: number | undefined) => WEEKDAYS[day ?? 0];
  const days = runs.map((run) =>
    run.length > 2 ? `${name(run[0])}–${name(run.at(-1))}` : run.map((day) => name(day)).join(", "),
  );
  return `${weekdays.length === 7 ? "daily" : days.join(", ")} ${start}–${end}`;
}
