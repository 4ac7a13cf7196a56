/** Browsers by what their User-Agent contains; those that also contain another's name are first. */
const BROWSERS: [pattern: RegExp, name: string][] = [
  [/Edg(?:A|iOS)?\/(\d+)/, "Edge"],
  [/OPR\/(\d+)/, "Opera"],
  [/(?:Firefox|FxiOS)\/(\d+)/, "Firefox"],
  [/(?:Chrome|CriOS)\/(\d+)/, "Chrome"],
  [/Version\/(\d+).*Safari/, "Safari"],
];
const SYSTEMS: [pattern: RegExp, name: string][] = [
  [/Windows NT/, "Windows"],
  [/Android/, "Android"],
  [/iPhone|iPad/, "iOS"],
  [/Mac OS X/, "macOS"],
  [/CrOS/, "ChromeOS"],
  [/Linux/, "Linux"],
];

/** Browser and operating system of a User-Agent: `Firefox 132 on Linux`; an unknown one is returned unchanged. */
export function browserName(userAgent: string): string {
  const browser = BROWSERS.find(([pattern]) => pattern.test(userAgent));
  if (browser === undefined) return userAgent;
  const system = SYSTEMS.find(([pattern]) => pattern.test(userAgent));
  const version = userAgent.match(browser[0])?.[1];
  return `${browser[1]} ${version}${system === undefined ? "" : ` on ${system[1]}`}`;
}
