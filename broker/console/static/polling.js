// Asks the broker every two seconds while the page is visible, and keeps the history that the page draws. The broker
// keeps none.

export const INTERVAL_MS = 2000;
export const PATIENCE_MS = 10_000;
const MOST_SAMPLES = 150;
const MOST_SERIES = 2000;

const series = new Map();

// Returns the JSON of a path. Throws an Error with the broker's words, or one named TimeoutError after PATIENCE_MS.
export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const response = await fetch(`/api/${path}${query ? `?${query}` : ""}`, { cache: "no-store", signal });
  if (response.ok) return response.json();
  const document = await response.json().catch(() => null);
  throw new Error(document?.error ?? `HTTP ${response.status}`);
}

// Adds a value to a series, and returns its values, the newest last.
export function remember(name, value) {
  let values = series.get(name);
  if (values === undefined) {
    if (series.size >= MOST_SERIES) series.delete(series.keys().next().value);
    values = [];
    series.set(name, values);
  }
  values.push(value);
  if (values.length > MOST_SAMPLES) values.shift();
  return values;
}

// Calls `poll`, which returns a promise, again and again; never twice at once, and not while the page is hidden.
export class Polling {
  constructor(poll) {
    this.poll = poll;
    this.paused = false;
    this.timer = null;
    this.running = false;
    this.again = false;
    document.addEventListener("visibilitychange", () => this.now());
  }

  pause(paused) {
    this.paused = paused;
    if (!paused) this.now();
  }

  // Polls at once: another view is shown, or the page is visible again.
  async now() {
    clearTimeout(this.timer);
    if (this.running) {
      this.again = true;
      return;
    }
    if (document.hidden) return;
    this.running = true;
    do {
      this.again = false;
      await this.poll();
    } while (this.again);
    this.running = false;
    this.timer = setTimeout(() => this.paused || this.now(), INTERVAL_MS);
  }
}
