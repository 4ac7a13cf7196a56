import { expect, test } from "vitest";
import { ApiProblem } from "../api/client";
import { fieldErrors } from "./fieldErrors";

const problem = new ApiProblem(422, "invalid", "Invalid", "", [
  { field: "body.spec.act_percent", message: "Too much." },
  { field: "name", message: "Taken." },
]);

test("the backend's messages are mapped to the form's paths", () => {
  expect(fieldErrors(null, problem)).toEqual({ "spec.act_percent": "Too much.", name: "Taken." });
});

test("the form's message takes precedence over the response's", () => {
  expect(fieldErrors({ name: "Empty." }, problem).name).toBe("Empty.");
});

test("an error without fields adds nothing", () => {
  expect(fieldErrors({ name: "Empty." }, new Error("offline"))).toEqual({ name: "Empty." });
});
