// Sparklines: the history of one number, as an SVG of two paths.

import { setAttribute, svg } from "./elements.js";

const WIDTH = 100;
const HEIGHT = 28;

export function sparkline() {
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "area" }),
    svg("path", { class: "line" }),
  );
}

export function draw(chart, values) {
  const known = values.filter((value) => value !== null);
  const [area, line] = chart.children;
  if (known.length < 2) {
    setAttribute(area, "d", "");
    setAttribute(line, "d", "");
    return;
  }
  const top = Math.max(...known);
  const bottom = Math.min(0, ...known);
  const span = top - bottom || 1;
  const step = WIDTH / (known.length - 1);
  const points = known.map(
    (value, index) => `${(index * step).toFixed(1)} ${(HEIGHT - ((value - bottom) / span) * (HEIGHT - 2) - 1).toFixed(1)}`,
  );
  setAttribute(line, "d", `M${points.join("L")}`);
  setAttribute(area, "d", `M${points.join("L")}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`);
}
