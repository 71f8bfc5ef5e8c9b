// The pictures on buttons: strokes on a grid of 16 by 16.

const SVG = "http://www.w3.org/2000/svg";

export const ICONS = {
  declaration: "M2.5 3.5h11M2.5 8h11M2.5 12.5h11",
  norm: "M2.5 3.5h11M2.5 8h7M2.5 12.5h3",
  change: "M2 11.5 6 7l3 3 5-6M10.5 4H14v3.5",
  fold: "M3 6l5 4 5-4M3 2.5h10M3 13.5h10",
  unfold: "M3 2.5h10M6 6.5h7M6 10h7M6 13.5h7",
  in: "M3 8h10M8 3v10",
  out: "M3 8h10",
  whole: "M2 3v10M14 3v10M4.5 8h7M6.5 5.5 4 8l2.5 2.5M9.5 5.5 12 8l-2.5 2.5",
  tail: "M14 3v10M3 8h8.5M8.5 5 11.5 8l-3 3",
  clear: "M4 4l8 8M12 4l-8 8",
  copy: "M6 5V2.5h7.5v8.5H11M2.5 5H11v8.5H2.5z",
} as const;

export function icon(name: keyof typeof ICONS): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ class: "gv-icon", viewBox: "0 0 16 16", "aria-hidden": "true" })) svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}
