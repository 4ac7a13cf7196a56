import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import * as v from "valibot";
import { ApiProblem, api, unwrap } from "./api/client";
import { meQuery, openChangesQuery, queryClient, whenSignedOut } from "./api/queries";
import { validateChangesSearch } from "./changes/search";
import { runningQuery } from "./experiments/queries";
import { validateExperimentSearch, validateListSearch, validateNewSearch } from "./experiments/search";
import { validateFleetSearch } from "./fleet/search";
import { formSchemasQuery } from "./forms/formSchemas";
import { filledText, param, positiveInteger, timeMs, validated } from "./lib/searchParams";
import { validateNodeSearch } from "./node/search";
import { validateNewPolicySearch, validatePolicySearch } from "./policies/search";
import { ErrorPage, NotFoundPage } from "./shell/ErrorPage";
import { PagePending, Pending } from "./shell/Pending";
import { Shell } from "./shell/Shell";
import { validateNewStudySearch, validateStudiesSearch, validateStudySearch } from "./simulation/search";
import { stopsQuery } from "./stops/queries";

const rootRoute = createRootRoute({
  pendingComponent: Pending,
  notFoundComponent: NotFoundPage,
  errorComponent: ErrorPage,
});

/** Redirects to the set-up page while there is no user who could sign in. */
async function toSetupIfNeeded(): Promise<void> {
  if ((await unwrap(api.GET("/api/v1/auth/setup"))).needs_setup) throw redirect({ to: "/setup" });
}

const setupRoute = createRoute({
  getParentRoute: () => rootRoute,
  pendingComponent: Pending,
  path: "setup",
  validateSearch: validated(v.object({ token: param(filledText) })),
  component: lazyRouteComponent(() => import("./auth/SetupPage"), "SetupPage"),
});

const loginRoute = createRoute({
  getParentRoute: () => rootRoute,
  pendingComponent: Pending,
  path: "login",
  validateSearch: validated(v.object({ back: param(filledText) })),
  beforeLoad: toSetupIfNeeded,
  component: lazyRouteComponent(() => import("./auth/LoginPage"), "LoginPage"),
});

const signedInRoute = createRoute({
  getParentRoute: () => rootRoute,
  pendingComponent: Pending,
  path: "signed-in",
  validateSearch: validated(
    v.object({
      state: v.fallback(v.string(), ""),
      code: param(filledText),
      error: param(filledText),
      error_description: param(filledText),
    }),
  ),
  component: lazyRouteComponent(() => import("./auth/SignedInPage"), "SignedInPage"),
});

/** Parent of all pages that require a signed-in user. */
const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  pendingComponent: Pending,
  id: "shell",
  component: Shell,
  errorComponent: ErrorPage,
  beforeLoad: async ({ location, cause }) => {
    // Known before the page is drawn, their bars do not move it when they appear; the page opens without them too.
    const once = cause === "enter" ? { retry: false } : {}; // what is waited for is not tried again and again
    const bars = Promise.allSettled([
      queryClient.query({ ...openChangesQuery, ...once }),
      queryClient.query({ ...runningQuery, ...once }),
      queryClient.query({ ...stopsQuery, ...once }),
    ]);
    try {
      // What is known is not waited for: within the shell every click would wait, during an outage for its end.
      await Promise.all([
        queryClient.query({ ...meQuery, staleTime: "static" }),
        queryClient.query({ ...formSchemasQuery, staleTime: "static" }),
      ]);
      if (cause === "enter") await bars;
    } catch (error) {
      if (!(error instanceof ApiProblem) || error.status !== 401) throw error;
      await toSetupIfNeeded();
      throw redirect({ to: "/login", search: { back: location.href } });
    }
  },
});

const indexRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/fleet" });
  },
});

const fleetRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "fleet",
  validateSearch: validateFleetSearch,
  component: lazyRouteComponent(() => import("./fleet/FleetPage"), "FleetPage"),
});

const nodeRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "nodes/$nodeId",
  params: {
    parse: ({ nodeId }) => ({ nodeId: Number(nodeId) }),
    stringify: ({ nodeId }) => ({ nodeId: String(nodeId) }),
  },
  validateSearch: validateNodeSearch,
  component: lazyRouteComponent(() => import("./node/NodePage"), "NodePage"),
});

const policiesRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "policies",
  component: lazyRouteComponent(() => import("./policies/PoliciesPage"), "PoliciesPage"),
});
const newPolicyRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "policies/new",
  validateSearch: validateNewPolicySearch,
  component: lazyRouteComponent(() => import("./policies/NewPolicyPage"), "NewPolicyPage"),
});
const policyRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "policies/$policyId",
  params: {
    parse: ({ policyId }) => ({ policyId: Number(policyId) }),
    stringify: ({ policyId }) => ({ policyId: String(policyId) }),
  },
  validateSearch: validatePolicySearch,
  component: lazyRouteComponent(() => import("./policies/PolicyPage"), "PolicyPage"),
});

const experimentsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "experiments",
  validateSearch: validateListSearch,
  component: lazyRouteComponent(() => import("./experiments/ExperimentsPage"), "ExperimentsPage"),
});
const newExperimentRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "experiments/new",
  validateSearch: validateNewSearch,
  component: lazyRouteComponent(() => import("./experiments/NewExperimentPage"), "NewExperimentPage"),
});
const experimentRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "experiments/$experimentId",
  params: {
    parse: ({ experimentId }) => ({ experimentId: Number(experimentId) }),
    stringify: ({ experimentId }) => ({ experimentId: String(experimentId) }),
  },
  validateSearch: validateExperimentSearch,
  component: lazyRouteComponent(() => import("./experiments/ExperimentPage"), "ExperimentPage"),
});

const studiesRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "simulations",
  validateSearch: validateStudiesSearch,
  component: lazyRouteComponent(() => import("./simulation/StudiesPage"), "StudiesPage"),
});
const newStudyRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "simulations/new",
  validateSearch: validateNewStudySearch,
  component: lazyRouteComponent(() => import("./simulation/NewStudyPage"), "NewStudyPage"),
});
const studyRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "simulations/$studyId",
  params: {
    parse: ({ studyId }) => ({ studyId: Number(studyId) }),
    stringify: ({ studyId }) => ({ studyId: String(studyId) }),
  },
  validateSearch: validateStudySearch,
  component: lazyRouteComponent(() => import("./simulation/StudyPage"), "StudyPage"),
});

const changesRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "changes",
  validateSearch: validateChangesSearch,
  component: lazyRouteComponent(() => import("./changes/ChangesPage"), "ChangesPage"),
});

const alertsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "alerts",
  validateSearch: validated(v.object({ tab: param(v.picklist(["alerts", "rules", "receivers"])) })),
  component: lazyRouteComponent(() => import("./alerts/AlertsPage"), "AlertsPage"),
});

const auditRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "audit",
  validateSearch: validated(
    v.object({
      node: param(positiveInteger),
      actor: param(filledText),
      action: param(filledText),
      q: param(filledText),
      from: param(timeMs),
      to: param(timeMs),
      older: param(positiveInteger),
    }),
  ),
  component: lazyRouteComponent(() => import("./audit/AuditPage"), "AuditPage"),
});

const accountRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "account",
  component: lazyRouteComponent(() => import("./auth/AccountPage"), "AccountPage"),
});

/** Every other address: the frame with its navigation, and what was not found. */
const notFoundRoute = createRoute({ getParentRoute: () => shellRoute, path: "$", component: NotFoundPage });

const settingsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "settings",
  component: lazyRouteComponent(() => import("./settings/SettingsPage"), "SettingsPage"),
});
const settingsIndexRoute = createRoute({
  getParentRoute: () => settingsRoute,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/settings/nodes" });
  },
});
const nodesSettingsRoute = createRoute({
  getParentRoute: () => settingsRoute,
  path: "nodes",
  component: lazyRouteComponent(() => import("./settings/NodesSection"), "NodesSection"),
});
const usersSettingsRoute = createRoute({
  getParentRoute: () => settingsRoute,
  path: "users",
  component: lazyRouteComponent(() => import("./settings/UsersSection"), "UsersSection"),
});
const tokensSettingsRoute = createRoute({
  getParentRoute: () => settingsRoute,
  path: "tokens",
  component: lazyRouteComponent(() => import("./settings/TokensSection"), "TokensSection"),
});
const applicationMetricsSettingsRoute = createRoute({
  getParentRoute: () => settingsRoute,
  path: "application-metrics",
  component: lazyRouteComponent(() => import("./settings/ApplicationMetricsSection"), "ApplicationMetricsSection"),
});
const changeControlSettingsRoute = createRoute({
  getParentRoute: () => settingsRoute,
  path: "change-control",
  component: lazyRouteComponent(() => import("./settings/ChangeControlSection"), "ChangeControlSection"),
});
const aboutSettingsRoute = createRoute({
  getParentRoute: () => settingsRoute,
  path: "about",
  component: lazyRouteComponent(() => import("./settings/AboutSection"), "AboutSection"),
});

export const router = createRouter({
  routeTree: rootRoute.addChildren([
    indexRoute,
    setupRoute,
    loginRoute,
    signedInRoute,
    shellRoute.addChildren([
      fleetRoute,
      nodeRoute,
      policiesRoute,
      newPolicyRoute,
      policyRoute,
      experimentsRoute,
      newExperimentRoute,
      experimentRoute,
      studiesRoute,
      newStudyRoute,
      studyRoute,
      changesRoute,
      alertsRoute,
      auditRoute,
      accountRoute,
      notFoundRoute,
      settingsRoute.addChildren([
        settingsIndexRoute,
        nodesSettingsRoute,
        usersSettingsRoute,
        tokensSettingsRoute,
        applicationMetricsSettingsRoute,
        changeControlSettingsRoute,
        aboutSettingsRoute,
      ]),
    ]),
  ]),
  // Search parameters are strings in the URL; each route's validateSearch parses them.
  parseSearch: (search) => Object.fromEntries(new URLSearchParams(search)),
  stringifySearch: (search: Record<string, unknown>) => {
    const text = new URLSearchParams(
      Object.entries(search).flatMap(([key, value]) => (value === undefined ? [] : [[key, String(value)]])),
    ).toString();
    return text && `?${text}`;
  },
  defaultPreload: "intent",
  defaultErrorComponent: ErrorPage,
  defaultPendingComponent: PagePending,
});

whenSignedOut(() => {
  // a page that is being opened redirects by itself; to begin again with each refused query would never end
  if (queryClient.getQueryData(meQuery.queryKey) === undefined) return;
  queryClient.removeQueries({ queryKey: meQuery.queryKey });
  void router.invalidate(); // the shell's beforeLoad redirects to the login and back
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
