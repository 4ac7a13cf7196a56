import { ApprovalThreshold } from "./ApprovalThreshold";
import { ChangeWindows } from "./ChangeWindows";

/** Settings section of change control: when policies may write, and what two people decide. */
export function ChangeControlSection() {
  return (
    <>
      <ChangeWindows />
      <ApprovalThreshold />
    </>
  );
}
