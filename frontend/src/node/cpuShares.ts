/** CPU time shares that the heatmap can show, by their API names. */
export const HEAT_SHARES = ["busy", "softirq", "irq", "user"] as const;
export type HeatShare = (typeof HEAT_SHARES)[number];
