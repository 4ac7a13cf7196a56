import {
  type CSSVariablesResolver,
  createTheme,
  defaultVariantColorsResolver,
  type VariantColorsResolver,
} from "@mantine/core";

/** A filled button in the accent colour needs the text colour that goes with it; all else is Mantine's own. */
const variantColorResolver: VariantColorsResolver = (input) => {
  if (input.variant === "filled" && input.color === undefined) {
    return {
      background: "var(--accent)",
      hover: "color-mix(in srgb, var(--accent), var(--text) 15%)",
      color: "var(--on-accent)",
      border: "1px solid transparent",
    };
  }
  return defaultVariantColorsResolver(input);
};

export const theme = createTheme({
  fontFamily: "var(--font)",
  fontFamilyMonospace: "var(--mono)",
  fontSizes: { xs: "var(--t-xs)", sm: "var(--t-s)", md: "var(--t-m)", lg: "var(--t-l)", xl: "var(--t-xl)" },
  defaultRadius: "var(--radius)",
  cursorType: "pointer",
  focusRing: "auto",
  respectReducedMotion: true,
  variantColorResolver,
  components: {
    Button: { defaultProps: { size: "compact-sm", variant: "default" } },
    ActionIcon: { defaultProps: { size: "sm", variant: "subtle" } },
    TextInput: { defaultProps: { size: "xs" } },
    PasswordInput: { defaultProps: { size: "xs" } },
    NativeSelect: { defaultProps: { size: "xs" } },
    Checkbox: { defaultProps: { size: "xs" } },
    SegmentedControl: { defaultProps: { size: "xs" } },
    Modal: { defaultProps: { transitionProps: { duration: 0 }, overlayProps: { backgroundOpacity: 0.4 } } },
    Menu: { defaultProps: { transitionProps: { duration: 0 }, withinPortal: true } },
  },
});

const tokens = {
  "--mantine-color-body": "var(--panel)",
  "--mantine-color-text": "var(--text)",
  "--mantine-color-bright": "var(--text)",
  "--mantine-color-dimmed": "var(--muted)",
  "--mantine-color-placeholder": "var(--muted)",
  "--mantine-color-anchor": "var(--accent)",
  "--mantine-color-error": "var(--bad)",
  "--mantine-color-default": "var(--raised)",
  "--mantine-color-default-hover": "var(--line)",
  "--mantine-color-default-color": "var(--text)",
  "--mantine-color-default-border": "var(--line-strong)",
  "--mantine-color-disabled": "var(--raised)",
  "--mantine-color-disabled-color": "var(--muted)",
  "--mantine-color-disabled-border": "var(--line)",
  "--mantine-primary-color-filled": "var(--accent)",
  "--mantine-primary-color-light": "var(--accent-weak)",
  "--mantine-primary-color-light-color": "var(--accent)",
};

/** Maps Mantine's variables onto the tokens; the tokens change with the colour scheme by themselves. */
export const cssVariablesResolver: CSSVariablesResolver = () => ({ variables: {}, light: tokens, dark: tokens });
