// Prints why a test failed at once: vitest says nothing of the first try of one that passes when it runs once more.
import { afterEach } from "vitest";

afterEach(({ task }) => {
  if (task.result?.state === "fail") console.error(`Failed: ${task.name}`, task.result.errors?.at(-1)?.stack);
});
