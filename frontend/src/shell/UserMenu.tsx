import { Button, Menu, useMantineColorScheme } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { errorMessage, type Schemas } from "../api/client";
import { limitsText, useMe } from "../auth/me";
import styles from "./shell.module.css";
import { useSignOut } from "./signOut";

const SCHEMES = [
  ["auto", "System"],
  ["light", "Light"],
  ["dark", "Dark"],
] as const;

/** `operator of role=db`. */
const roleText = (me: Schemas["Me"]) => (me.limits.length === 0 ? me.role : `${me.role} of ${limitsText(me)}`);

/** Menu with the user's name and role, the color scheme, the account and Sign out. */
export function UserMenu() {
  const me = useMe();
  const navigate = useNavigate();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const signOut = useSignOut();
  return (
    <Menu position="bottom-end" width={190}>
      <Menu.Target>
        <Button aria-label={me && `${me.username} · ${roleText(me)}`} className={styles.user}>
          {me?.username ?? "…"}
          {me && <span className={styles.wide}>&nbsp;· {roleText(me)}</span>}
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Color scheme</Menu.Label>
        {SCHEMES.map(([scheme, label]) => (
          <Menu.Item
            key={scheme}
            closeMenuOnClick={false}
            onClick={() => setColorScheme(scheme)}
            rightSection={colorScheme === scheme ? "✓" : undefined}
            aria-label={colorScheme === scheme ? `${label}, selected` : label}
          >
            {label}
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Item onClick={() => void navigate({ to: "/account" })}>Password and sessions</Menu.Item>
        <Menu.Item closeMenuOnClick={false} onClick={() => signOut.mutate()}>
          Sign out
        </Menu.Item>
        {signOut.isError && <Menu.Label role="alert">{errorMessage(signOut.error)}</Menu.Label>}
      </Menu.Dropdown>
    </Menu>
  );
}
