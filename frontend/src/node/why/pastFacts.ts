import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { ratesOfMatrix } from "../interrupts/matrixRows";
import type { NodeView } from "../nodeView";
import { heatQuery, matrixQuery } from "../queries";
import { meanOfCells, percents } from "../time/load";
import type { Facts } from "./why";

/** What is stored of the shown past range: load and interrupts, no tasks; null in live mode and until loaded. */
export function usePastFacts({ node, topology, inventory, past }: NodeView): Facts | null {
  const busy = useQuery(heatQuery(node.id, "busy", past)).data;
  const softirq = useQuery(heatQuery(node.id, "softirq", past)).data;
  const matrix = useQuery(matrixQuery(node.id, past)).data;
  return useMemo(() => {
    if (past === null || busy === undefined || softirq === undefined || matrix === undefined) return null;
    const shares = { busy: percents(meanOfCells(busy)), softirq: percents(meanOfCells(softirq)) };
    return { topology, inventory, paths: [], tasks: [], rates: ratesOfMatrix(matrix), ...shares };
  }, [past, busy, softirq, matrix, topology, inventory]);
}
