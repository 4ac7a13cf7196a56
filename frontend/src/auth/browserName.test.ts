import { expect, test } from "vitest";
import { browserName } from "./browserName";

const KIT = "AppleWebKit/537.36 (KHTML, like Gecko)";

test.each([
  ["Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0", "Firefox 132 on Linux"],
  [`Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${KIT} Chrome/131.0.0.0 Safari/537.36`, "Chrome 131 on Windows"],
  [
    `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${KIT} Chrome/131.0.0.0 Safari/537.36 Edg/131.0.0.0`,
    "Edge 131 on Windows",
  ],
  [`Mozilla/5.0 (Linux; Android 10; K) ${KIT} Chrome/131.0.0.0 Mobile Safari/537.36`, "Chrome 131 on Android"],
  [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 Version/18.1 Mobile/15E148 Safari/604.1",
    "Safari 18 on iOS",
  ],
  [
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/18.1 Safari/605.1.15",
    "Safari 18 on macOS",
  ],
  ["curl/8.5.0", "curl/8.5.0"],
  ["", ""],
])("%s is %s", (userAgent, name) => expect(browserName(userAgent)).toBe(name));
