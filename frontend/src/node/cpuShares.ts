/** The parts of a CPU's time that the heatmap can show, as the API names them. */
export const HEAT_SHARES = ["busy", "softirq", "irq", "user"] as const;
export type HeatShare = (typeof HEAT_SHARES)[number];
