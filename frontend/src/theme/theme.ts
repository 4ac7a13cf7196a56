import {
  type CSSVariablesResolver,
  createTheme,
  defaultVariantColorsResolver,
  type MantineColorsTuple,
  type VariantColorsResolver,
} from "@mantine/core";

const token = (name: string) => `var(--${name})`;
const shades = (...names: string[]) => names.map(token) as unknown as MantineColorsTuple;
const ACCENT = "accent";

/** Sets the text colour of filled buttons to the accent's contrast colour; everything else is Mantine's default. */
const variantColorResolver: VariantColorsResolver = (input) => {
  const colors = defaultVariantColorsResolver(input);
  return input.variant === "filled" ? { ...colors, color: "var(--on-accent)" } : colors;
};

export const theme = createTheme({
  fontFamily: "var(--font)",
  fontFamilyMonospace: "var(--mono)",
  fontSizes: { xs: "var(--t-xs)", sm: "var(--t-s)", md: "var(--t-m)", lg: "var(--t-l)", xl: "var(--t-xl)" },
  primaryColor: ACCENT,
  colors: {
    [ACCENT]: shades(...Array<string>(10).fill("accent")),
    // The greys that Mantine's components take by number, from its lightest to its darkest.
    dark: shades("text", "muted", "muted", "muted", "line-strong", "line", "raised", "panel", "bg", "bg"),
    gray: shades("raised", "raised", "line", "line", "line-strong", "muted", "muted", "text", "text", "text"),
  },
  defaultRadius: "var(--radius)",
  cursorType: "pointer",
  focusRing: "auto",
  respectReducedMotion: true,
  variantColorResolver,
  components: {
    Button: { defaultProps: { size: "compact-sm", variant: "default" } },
    // Mantine's defaults are 2 px smaller than its smallest text.
    InputWrapper: {
      // With the explanation below, the fields of a row have their labels and inputs at the same height.
      defaultProps: { inputWrapperOrder: ["label", "input", "description", "error"] },
      vars: () => ({
        label: {},
        error: { "--input-error-size": "var(--t-s)" },
        description: { "--input-description-size": "var(--t-s)" },
      }),
    },
    TextInput: { defaultProps: { size: "xs" } },
    PasswordInput: {
      defaultProps: {
        size: "xs",
        visibilityToggleFocusable: true,
        // Mantine's own gray is that of a line in the dark.
        visibilityToggleButtonProps: { "aria-label": "Show or hide what is typed", c: "var(--muted)" },
      },
    },
    NativeSelect: { defaultProps: { size: "xs" } },
    Modal: {
      defaultProps: {
        transitionProps: { duration: 0 },
        overlayProps: { backgroundOpacity: 0.4 },
        yOffset: "calc(var(--head) + 16px)",
      },
    },
    ModalHeader: { defaultProps: { component: "div" } }, // the page has a header already
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
};

/** Maps Mantine's variables to the design tokens, whose values depend on the colour scheme. */
export const cssVariablesResolver: CSSVariablesResolver = () => ({ variables: {}, light: tokens, dark: tokens });
