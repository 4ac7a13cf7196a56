import { AuditIcon, ExperimentsIcon, FleetIcon, PoliciesIcon, SettingsIcon } from "./icons";

/** Every page with a link in the rail. */
export const PAGES = [
  { to: "/fleet", label: "Fleet", icon: <FleetIcon /> },
  { to: "/policies", label: "Policies", icon: <PoliciesIcon /> },
  { to: "/experiments", label: "Experiments", icon: <ExperimentsIcon /> },
  { to: "/audit", label: "Audit", icon: <AuditIcon /> },
  { to: "/settings", label: "Settings", icon: <SettingsIcon /> },
] as const;

/** Sections that the palette offers instead of their page. */
export const SETTINGS_SECTIONS = [
  { to: "/settings/nodes", label: "Settings: nodes" },
  { to: "/settings/users", label: "Settings: users" },
  { to: "/settings/tokens", label: "Settings: API tokens" },
  { to: "/settings/about", label: "Settings: about" },
] as const;
