import { Button, Menu, useMantineColorScheme } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { api, errorMessage, unwrap } from "../api/client";
import { queryClient } from "../api/queries";
import { useMe } from "../auth/me";

const SCHEMES = [
  ["auto", "System"],
  ["light", "Light"],
  ["dark", "Dark"],
] as const;

/** Menu with the user's name and role, the colour scheme and Sign out. */
export function UserMenu() {
  const me = useMe();
  const navigate = useNavigate();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const logout = useMutation({
    mutationFn: () => unwrap(api.POST("/api/auth/logout")),
    onSuccess: async () => {
      await navigate({ to: "/login" });
      queryClient.clear();
    },
  });
  return (
    <Menu position="bottom-end" width={190}>
      <Menu.Target>
        <Button>{me ? `${me.username} · ${me.role}` : "…"}</Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Colour scheme</Menu.Label>
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
        <Menu.Item closeMenuOnClick={false} onClick={() => logout.mutate()}>
          Sign out
        </Menu.Item>
        {logout.isError && <Menu.Label role="alert">{errorMessage(logout.error)}</Menu.Label>}
      </Menu.Dropdown>
    </Menu>
  );
}
