import { AuditIcon, ExperimentsIcon, FleetIcon, PoliciesIcon, SettingsIcon, StudyIcon } from "./icons";

/** The pages linked in the rail and offered by the palette. */
export const PAGES = [
  { to: "/fleet", label: "Fleet", icon: <FleetIcon /> },
  { to: "/policies", label: "Policies", icon: <PoliciesIcon /> },
  { to: "/experiments", label: "Experiments", icon: <ExperimentsIcon /> },
  { to: "/simulations", label: "Coscheduling study", icon: <StudyIcon /> },
  { to: "/audit", label: "Audit", icon: <AuditIcon /> },
  { to: "/settings", label: "Settings", icon: <SettingsIcon /> },
] as const;

/** Settings sections, offered by the palette instead of the settings page. */
export const SETTINGS_SECTIONS = [
  { to: "/settings/nodes", label: "Settings: nodes" },
  { to: "/settings/users", label: "Settings: users" },
  { to: "/settings/tokens", label: "Settings: API tokens" },
  { to: "/settings/application-metrics", label: "Settings: application metrics" },
  { to: "/settings/about", label: "Settings: about" },
] as const;
