import { Link, Outlet } from "@tanstack/react-router";
import { PAGE_TOP_ID } from "../components/PageTop";
import { RunningBanners } from "../experiments/RunningBanner";
import { zoneName } from "../lib/time";
import { useLiveCache } from "../live/cacheUpdates";
import { useLiveState } from "../live/socket";
import { StopBanners } from "../stops/StopBanners";
import { BackendBar, useOutage } from "./BackendBar";
import { ChangeBanners } from "./ChangeBanners";
import { Logo } from "./icons";
import { Keys } from "./Keys";
import { MorePages } from "./MorePages";
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

/** The browser's time zone, for all times of the page. */
function TimeZone() {
  const zone = zoneName(Date.now());
  return (
    <span className={styles.zone} title="Times are shown in this time zone, your browser's">
      {zone}
    </span>
  );
}

/** Publishes an element's height as --head: what sticks to the top sticks below the header and the pending change. */
function publishHeight(element: HTMLElement | null) {
  if (element === null) return;
  const observer = new ResizeObserver(() =>
    document.documentElement.style.setProperty("--head", `${element.offsetHeight}px`),
  );
  observer.observe(element);
  return () => observer.disconnect();
}

/** The frame of every page: rail (on a phone a tab bar), top bar, outages and unconfirmed changes. */
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
        {PAGES.map(({ to, label, icon, isTab }) => (
          <Link key={to} to={to} className={isTab ? styles.page : `${styles.page} ${styles.wide}`}>
            {icon}
            {label}
          </Link>
        ))}
        <MorePages />
      </nav>
      <div>
        <div ref={publishHeight} className={styles.head}>
          <header className={styles.top}>
            <div id={PAGE_TOP_ID} className={styles.slot} />
            <h1 className="visually-hidden">Loading</h1>
            <TimeZone />
            <LiveTag />
            <Keys />
            <UserMenu />
          </header>
          <StopBanners />
          <ChangeBanners />
        </div>
        <main id="content" className={styles.main} tabIndex={-1}>
          <BackendBar />
          <RunningBanners />
          <Outlet />
        </main>
      </div>
    </div>
  );
}
