import { Menu } from "@mantine/core";
import { useMatchRoute, useNavigate } from "@tanstack/react-router";
import { MoreIcon } from "./icons";
import { PAGES } from "./pages";
import styles from "./shell.module.css";

/** The last tab of the phone's tab bar: a menu of the pages without a tab. */
export function MorePages() {
  const navigate = useNavigate();
  const matches = useMatchRoute();
  const pages = PAGES.filter(({ isTab }) => !isTab);
  const isActive = pages.some(({ to }) => matches({ to, fuzzy: true }));
  return (
    <Menu position="top-end" width={220}>
      <Menu.Target>
        <button type="button" className={`${styles.page} ${styles.more}`} data-status={isActive ? "active" : undefined}>
          <MoreIcon />
          More
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        {pages.map(({ to, label, icon }) => (
          <Menu.Item key={to} leftSection={icon} onClick={() => void navigate({ to })}>
            {label}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
