import type { ReactNode } from "react";

function Icon({ children }: { children: ReactNode }) {
  return (
    <svg
      width="18"
      height="18"
      viewBox="0 0 18 18"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.4"
      aria-hidden="true"
    >
      {children}
    </svg>
  );
}

export const Logo = () => (
  <Icon>
    <path d="M9 1.5 16.5 9 9 16.5 1.5 9Z" />
    <path d="M9 5.5 12.5 9 9 12.5 5.5 9Z" fill="currentColor" stroke="none" />
  </Icon>
);
export const FleetIcon = () => (
  <Icon>
    <path d="M2.5 2.5h5v5h-5zM10.5 2.5h5v5h-5zM2.5 10.5h5v5h-5zM10.5 10.5h5v5h-5z" />
  </Icon>
);
export const PoliciesIcon = () => (
  <Icon>
    <path d="M9 2v4M9 6 4 10v5.5M9 6l5 4v5.5" />
    <circle cx="9" cy="6" r="1.6" fill="currentColor" />
    <circle cx="4" cy="14" r="1.6" />
    <circle cx="14" cy="14" r="1.6" />
  </Icon>
);
export const ExperimentsIcon = () => (
  <Icon>
    <path d="M7 2v5L3 14.2A1.2 1.2 0 0 0 4 16h10a1.2 1.2 0 0 0 1-1.8L11 7V2M5.8 2h6.4M5 11.5h8" />
  </Icon>
);
export const StudyIcon = () => (
  <Icon>
    <path d="M2.5 3v12.5h13M5.5 6h5M5.5 9h8M5.5 12h3" />
  </Icon>
);
export const AuditIcon = () => (
  <Icon>
    <path d="M3 4h12M3 9h12M3 14h8" />
  </Icon>
);
export const ChangesIcon = () => (
  <Icon>
    <path d="M3 6h11M11.5 3.5 14 6l-2.5 2.5M15 12H4M6.5 9.5 4 12l2.5 2.5" />
  </Icon>
);
export const AlertsIcon = () => (
  <Icon>
    <path d="M4 13V8a5 5 0 0 1 10 0v5l1.5 1.5h-13ZM7.5 14.5a1.5 1.5 0 0 0 3 0" />
  </Icon>
);
export const SettingsIcon = () => (
  <Icon>
    <path d="M2 5h8M14 5h2M2 13h2M8 13h8" />
    <circle cx="12" cy="5" r="2" />
    <circle cx="6" cy="13" r="2" />
  </Icon>
);
export const MoreIcon = () => (
  <Icon>
    <g fill="currentColor" stroke="none">
      <circle cx="3" cy="9" r="1.5" />
      <circle cx="9" cy="9" r="1.5" />
      <circle cx="15" cy="9" r="1.5" />
    </g>
  </Icon>
);
export const SearchIcon = () => (
  <Icon>
    <circle cx="8" cy="8" r="5" />
    <path d="m11.6 11.6 4 4" />
  </Icon>
);
