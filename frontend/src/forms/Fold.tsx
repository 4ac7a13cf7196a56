import { type ReactNode, useLayoutEffect, useRef } from "react";

type Props = { summary: ReactNode; isWrong: boolean; children: ReactNode };

/** Collapsed fields. They open when one of them becomes invalid; only the user closes them, who may be typing there. */
export function Fold({ summary, isWrong, children }: Props) {
  const details = useRef<HTMLDetailsElement>(null);
  useLayoutEffect(() => {
    if (isWrong && details.current !== null) details.current.open = true;
  }, [isWrong]);
  return (
    <details ref={details}>
      <summary>{summary}</summary>
      {children}
    </details>
  );
}
