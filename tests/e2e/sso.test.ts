// Signing in and out with an issuer, in a browser: the mock issuer consents to everything.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Machine, someMachine } from "./machine";
import { bin, Child, freePort, launchBrowser, type Stack, setUp, startStack, violations } from "./stack";

let machine: Machine;
let issuer: Child;
let stack: Stack;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  machine = await someMachine();
  const port = await freePort();
  issuer = new Child(bin("python"), ["-m", "tests.support.mock_issuer", String(port)], process.env);
  await issuer.until(/ready/);
  stack = await startStack({
    root: machine.root,
    settings: {
      CORESTEER_OIDC_ISSUER: `http://127.0.0.1:${port}`,
      CORESTEER_OIDC_CLIENT_ID: "coresteer",
      CORESTEER_OIDC_CLIENT_SECRET: "a secret of the client",
      CORESTEER_OIDC_ROLES: '{"sre": "operator:role=db"}',
    },
  });
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
  await issuer?.stop();
  await machine?.stop();
});

test("a user of the issuer returns to the page where the sign-in began, with the role of their groups", async () => {
  const local = await browser.newPage();
  await local.goto(stack.setUpLink);
  await setUp(local, stack);
  await local.close();
  await page.goto(`${stack.url}/policies`);
  await page.getByText("Then you return to").waitFor();
  expect(await violations(page)).toEqual([]);
  await page.getByRole("button", { name: "Sign in with 127.0.0.1" }).click();
  await page.getByRole("button", { name: "kim · operator of role=db" }).waitFor();
  await expect.poll(() => new URL(page.url()).pathname).toBe("/policies");
  await expect.poll(() => new URL(page.url()).search).toBe("");
});

test("a limited operator sees why a node cannot be changed", async () => {
  await page.goto(`${stack.url}/settings`);
  await page.getByRole("button", { name: "Readmit here" }).waitFor();
  await expect.poll(() => page.getByRole("button", { name: "Readmit here" }).isDisabled()).toBe(true);
  const title = () => page.getByRole("button", { name: "Readmit here" }).getAttribute("title");
  await expect.poll(title).toBe("You are operator of role=db only.");
});

test("the account of a user of the issuer has no form for a password", async () => {
  await page.goto(`${stack.url}/account`);
  await page.getByText("You sign in with http://127.0.0.1").waitFor();
  expect(await page.getByLabel("Current password").count()).toBe(0);
});

test("an answer that this browser did not ask for is refused in plain words", async () => {
  const stranger = await browser.newContext().then((context) => context.newPage());
  await stranger.goto(`${stack.url}/signed-in?code=stolen&state=guessed`);
  await stranger.getByText("This browser did not begin this sign-in").waitFor();
  await stranger.getByRole("link", { name: "Back to the sign-in page" }).waitFor();
  await stranger.close();
});

test("signing out signs out with the issuer as well, and returns to the sign-in page", async () => {
  const atIssuer = page.waitForRequest(/end-session\?.*id_token_hint=/);
  await page.getByRole("button", { name: "kim · operator of role=db" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await atIssuer;
  await page.getByRole("button", { name: "Sign in with 127.0.0.1" }).waitFor();
});
