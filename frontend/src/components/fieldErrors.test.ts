import { expect, test } from "vitest";
import { ApiProblem } from "../api/client";
import { fieldErrors } from "./fieldErrors";

const problem = new ApiProblem(422, "invalid", "Invalid", "", [
  { field: "body.spec.act_percent", message: "Too much." },
  { field: "name", message: "Taken." },
]);

test("the backend's messages are found by the form's own paths", () => {
  expect(fieldErrors(null, problem)).toEqual({ "spec.act_percent": "Too much.", name: "Taken." });
});

test("the form's own message takes precedence over an older answer's", () => {
  expect(fieldErrors({ name: "Empty." }, problem).name).toBe("Empty.");
});

test("an error without fields adds nothing", () => {
  expect(fieldErrors({ name: "Empty." }, new Error("offline"))).toEqual({ name: "Empty." });
});
