// Numbers and times as texts.

const GROUPED = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function number(value) {
  return value === null || value === undefined ? "–" : GROUPED.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
  return `${(ms / 86_400_000).toFixed(1)} d`;
}

export function rate(perSecond) {
  return perSecond === null ? "–" : `${bytes(perSecond)}/s`;
}
