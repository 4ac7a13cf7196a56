import {
  AlertsIcon,
  AuditIcon,
  ChangesIcon,
  ExperimentsIcon,
  FleetIcon,
  PoliciesIcon,
  SettingsIcon,
  StudyIcon,
} from "./icons";

/** The pages linked in the rail and offered by the palette. On a phone, those without `isTab` are under More. */
export const PAGES = [
  { to: "/fleet", label: "Fleet", icon: <FleetIcon />, isTab: true },
  { to: "/policies", label: "Policies", icon: <PoliciesIcon />, isTab: true },
  { to: "/experiments", label: "Experiments", icon: <ExperimentsIcon />, isTab: true },
  { to: "/changes", label: "Changes", icon: <ChangesIcon />, isTab: true },
  { to: "/alerts", label: "Alerts", icon: <AlertsIcon />, isTab: false },
  { to: "/simulations", label: "Studies", icon: <StudyIcon />, isTab: false },
  { to: "/audit", label: "Audit", icon: <AuditIcon />, isTab: false },
  { to: "/settings", label: "Settings", icon: <SettingsIcon />, isTab: false },
] as const;

/** Settings sections, offered by the palette instead of the settings page. */
export const SETTINGS_SECTIONS = [
  { to: "/settings/nodes", label: "Settings: nodes" },
  { to: "/settings/users", label: "Settings: users" },
  { to: "/settings/tokens", label: "Settings: API tokens" },
  { to: "/settings/application-metrics", label: "Settings: application metrics" },
  { to: "/settings/change-control", label: "Settings: change control" },
  { to: "/settings/about", label: "Settings: about" },
] as const;
