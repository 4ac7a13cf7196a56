/** The colour scale for amounts: cividis, readable with every kind of colour blindness and in grey. */

const clamp = (value: number) => Math.max(0, Math.min(255, Math.round(value)));

/**
 * Cividis at 0 to 1 as red, green, blue of 0 to 255; the polynomial of d3-scale-chromatic.
 * Nuñez, Anderton, Renslow, "Optimizing colormaps with consideration for color vision deficiency" (2018).
 */
export function cividis(t: number): [red: number, green: number, blue: number] {
  const x = Math.max(0, Math.min(1, t));
  return [
    clamp(-4.54 - x * (35.34 - x * (2381.73 - x * (6402.7 - x * (7024.72 - x * 2710.57))))),
    clamp(32.49 + x * (170.73 + x * (52.82 - x * (131.46 - x * (176.58 - x * 67.37))))),
    clamp(81.24 + x * (442.36 - x * (2482.43 - x * (6167.24 - x * (6614.94 - x * 2475.67))))),
  ];
}

const linear = (channel: number) => (channel <= 10 ? channel / 255 / 12.92 : ((channel / 255 + 0.055) / 1.055) ** 2.4);

/** Relative luminance at which black and white have the same contrast, 4.6 : 1. */
const BLACK_FROM = Math.sqrt(1.05 * 0.05) - 0.05;

/** The color of text on the scale: that of black and white which has more contrast, as in WCAG 2. */
export function inkOn(t: number): "black" | "white" {
  const [red, green, blue] = cividis(t).map(linear) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue >= BLACK_FROM ? "black" : "white";
}

/** 256 colours as u32 in the byte order of canvas images on little-endian machines (0xAABBGGRR). */
export const CIVIDIS_U32: Uint32Array = Uint32Array.from({ length: 256 }, (_, index) => {
  const [red, green, blue] = cividis(index / 255);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
});

/** The scale as a CSS background, for legends. */
export const CIVIDIS_GRADIENT = `linear-gradient(90deg, ${Array.from(
  { length: 11 },
  (_, index) => `rgb(${cividis(index / 10).join(" ")})`,
).join(", ")})`;
