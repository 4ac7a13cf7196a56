import { Link, Outlet, useMatchRoute } from "@tanstack/react-router";
import { PageTop } from "../components/PageTop";
import styles from "./settings.module.css";

const SECTIONS = [
  ["/settings/nodes", "Nodes and agents"],
  ["/settings/users", "Users"],
  ["/settings/tokens", "API tokens"],
  ["/settings/application-metrics", "Application metrics"],
  ["/settings/change-control", "Change control"],
  ["/settings/about", "About"],
] as const;

/** The settings page: navigation and the open section. */
export function SettingsPage() {
  const matches = useMatchRoute();
  const section = SECTIONS.find(([to]) => matches({ to }))?.[1];
  return (
    <>
      <PageTop title={section === undefined ? "Settings" : `${section} · Settings`}>
        <h1>Settings</h1>
      </PageTop>
      <div className={styles.page}>
        <nav className={styles.sections} aria-label="Sections">
          {SECTIONS.map(([to, label]) => (
            <Link key={to} to={to}>
              {label}
            </Link>
          ))}
        </nav>
        <div className={styles.content}>
          <Outlet />
        </div>
      </div>
    </>
  );
}
