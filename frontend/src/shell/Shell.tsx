import { Link, Outlet } from "@tanstack/react-router";
import { PAGE_TOP_ID } from "../components/PageTop";
import { useLiveCache } from "../live/cacheUpdates";
import { useLiveState } from "../live/socket";
import { BackendBar, useOutage } from "./BackendBar";
import { ChangeBanners } from "./ChangeBanners";
import { Logo } from "./icons";
import { Keys } from "./Keys";
import { PAGES } from "./pages";
import styles from "./shell.module.css";
import { UserMenu } from "./UserMenu";

function LiveTag() {
  const { status } = useLiveState();
  // A WebSocket may stay open while the backend is unresponsive.
  const silent = useOutage()?.kind === "backend";
  const label = status === "connecting" ? "connecting" : status === "retrying" || silent ? "retrying" : "live";
  return (
    <span className={styles.live} role="status">
      <span className={label === "live" ? "dot ok" : "dot warn"} />
      {label}
    </span>
  );
}

/** The frame of every page: rail, top bar, outages and unconfirmed changes. */
export function Shell() {
  useLiveCache();
  return (
    <div className={styles.shell}>
      <a className={styles.skip} href="#content">
        Skip to content
      </a>
      <nav className={styles.rail} aria-label="Pages">
        <span className={styles.logo} aria-hidden="true">
          <Logo />
        </span>
        {PAGES.map(({ to, label, icon }) => (
          <Link key={to} to={to} className={styles.page} aria-label={label} title={label}>
            {icon}
          </Link>
        ))}
      </nav>
      <header className={styles.top}>
        <div id={PAGE_TOP_ID} className={styles.slot} />
        <span className="grow" />
        <LiveTag />
        <Keys />
        <UserMenu />
      </header>
      <main id="content" className={styles.main} tabIndex={-1}>
        <BackendBar />
        <ChangeBanners />
        <Outlet />
      </main>
    </div>
  );
}
