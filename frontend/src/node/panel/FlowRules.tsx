import { Button, TextInput } from "@mantine/core";
import { useState } from "react";
import { ApplyPlan } from "../changes/ApplyPlan";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import type { Netdev } from "../types";
import { freeSlot } from "./flowRuleTable";
import styles from "./panel.module.css";

const EXAMPLE = "flow-type tcp4 dst-ip 10.0.0.1 dst-port 80 action 3";

/** The flow rules of a network device with their owners; those of Coresteer can be deleted, and one added. */
export function FlowRules({ view, netdev }: { view: NodeView; netdev: Netdev }) {
  const [previewed, setPreviewed] = useState<{ slot: number; value: string; count: number } | null>(null);
  /** count: the same rule again is another change, because the one before may have been rolled back. */
  const preview = (slot: number, value: string) =>
    setPreviewed((before) => ({ slot, value, count: (before?.count ?? 0) + 1 }));
  const [rule, setRule] = useState("");
  const [typedSlot, setTypedSlot] = useState("");
  const table = netdev.flow_rules;
  if (table === null) return <p className="muted">The driver reports no flow rules.</p>;
  const slot = typedSlot === "" ? freeSlot(table) : Number(typedSlot);
  return (
    <div className={nodeStyles.editor}>
      <p className="muted">
        {table.rules.length} of {table.size} slots are used. The lowest slot that matches selects the receive queue.
        {!table.complete && " Some rules could not be read."}
      </p>
      {table.rules.length > 0 && (
        <div className={styles.scrollX}>
          <table className="table">
            <thead>
              <tr>
                <th>slot</th>
                <th>rule</th>
                <th>owner</th>
                <th />
              </tr>
            </thead>
            <tbody>
              {table.rules.map(({ location, value, context_rule, ours }) => (
                <tr key={location}>
                  <td>{location}</td>
                  <td className="mono">
                    {value || context_rule || <span className="muted">of a kind that Coresteer does not set</span>}
                  </td>
                  <td>{ours ? "added by Coresteer" : "added by another program, never changed"}</td>
                  <td>
                    {ours && (
                      <Button
                        aria-label={`Delete the rule in slot ${location}`}
                        onClick={() => preview(location, "none")}
                      >
                        Delete…
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <TextInput
        label="Rule"
        description={`In ethtool's words, for example ${EXAMPLE}`}
        value={rule}
        onChange={(event) => setRule(event.currentTarget.value)}
        classNames={{ input: "mono" }}
        spellCheck={false}
        autoComplete="off"
      />
      <div className={nodeStyles.terms}>
        <TextInput
          label="Slot"
          inputMode="numeric"
          placeholder={slot === null ? "full" : String(slot)}
          value={typedSlot}
          error={typedSlot === "" || /^\d{1,5}$/.test(typedSlot) ? null : "Enter a whole number."}
          onChange={(event) => setTypedSlot(event.currentTarget.value.trim())}
        />
        <Button
          disabled={rule.trim() === "" || slot === null || !Number.isInteger(slot)}
          onClick={() => slot !== null && preview(slot, rule.trim())}
        >
          Preview
        </Button>
      </div>
      {previewed !== null && (
        <div className={nodeStyles.applying}>
          <ApplyPlan
            key={previewed.count}
            node={view.node}
            desired={[{ key: `netdev/${netdev.name}/flow-rule/${previewed.slot}`, value: previewed.value }]}
            reason=""
          />
          <Button onClick={() => setPreviewed(null)}>Close the preview</Button>
        </div>
      )}
    </div>
  );
}
