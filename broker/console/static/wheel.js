// The timing wheel as rings of buckets, the finest innermost. A line shows where the time stands on each ring; the bucket
// under the wheel's own hand, which moves when a bucket expires, has a border.

import { element, setAttribute, setClass, setText, svg } from "./elements.js";
import { duration, number } from "./formats.js";
import { INTERVAL_MS } from "./polling.js";
import { Table } from "./tables.js";

const SIZE = 440;
const CENTRE = SIZE / 2;
const INNER = 58;
const GAP = 4;
const FRAME_MS = 50;

export class Wheel {
  constructor() {
    this.dial = svg("svg", { class: "dial", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": "Timing wheel" });
    this.levels = new Table(
      "Levels of the timing wheel",
      [
        { title: "Level", text: (row) => row.level, kind: "number" },
        { title: "Bucket", text: (row) => duration(row.tick_ms), kind: "number" },
        { title: "Reaches", text: (row) => duration(row.interval_ms), kind: "number" },
        { title: "Tasks", text: (row) => number(row.count), kind: "number" },
        { title: "Hand at bucket", text: (row) => `${row.hand} of ${row.buckets}`, kind: "number" },
      ],
      (row) => row.level,
    );
    this.summary = element("p", { class: "lead" });
    this.node = element("section", { class: "wheel", "aria-label": "Timing wheel" }, this.dial, element("div", {}, this.summary, this.levels.node));
    this.shape = "";
    this.rings = [];
    this.state = null;
    this.frame = null;
  }

  update(state) {
    this.state = state;
    this.received = performance.now();
    const shape = state.levels.map((level) => level.tasks.length).join();
    if (shape !== this.shape) this.build(state.levels, shape);
    state.levels.forEach((level, index) => this.fill(level, this.rings[index]));
    setText(this.centre, number(state.tasks));
    this.levels.update(
      state.levels.map((level, index) => ({ ...level, level: index + 1, count: level.tasks.reduce((sum, tasks) => sum + tasks, 0) })),
    );
    const next = state.next_expiration_ms;
    const soon = next === null ? "No bucket is queued." : `The next bucket expires in ${duration(Math.max(next - state.now_ms, 0))}.`;
    setText(
      this.summary,
      `${number(state.tasks)} deadlines in ${state.levels.length} rings. ${soon} ${number(state.wakeups)} wake-ups since the start.`,
    );
    setAttribute(this.dial, "aria-label", `Timing wheel with ${number(state.tasks)} deadlines`);
    if (this.frame === null) this.turn();
  }

  build(levels, shape) {
    this.shape = shape;
    const width = (CENTRE - INNER - 6) / levels.length;
    this.rings = levels.map((level, index) => {
      const inner = INNER + index * width;
      const buckets = level.tasks.map((_, place) => bucket(inner, inner + width - GAP, place, level.tasks.length));
      const hand = svg("line", { class: "hand", x1: CENTRE, x2: CENTRE, y1: CENTRE - inner, y2: CENTRE - inner - width + GAP });
      return { buckets, hand };
    });
    this.centre = svg("text", { class: "centre", x: CENTRE, y: CENTRE + 4 });
    const label = svg("text", { class: "label", x: CENTRE, y: CENTRE + 20 }, "deadlines");
    this.dial.replaceChildren(...this.rings.flatMap((ring) => [...ring.buckets, ring.hand]), this.centre, label);
  }

  fill(level, ring) {
    level.tasks.forEach((tasks, place) => {
      const heat = tasks === 0 ? "" : ` heat-${Math.min(1 + Math.floor(Math.log10(tasks)), 4)}`;
      const shape = ring.buckets[place];
      setClass(shape, `bucket${heat}${place === level.hand ? " under-hand" : ""}`);
      setText(shape.firstChild, `bucket ${place} of ${level.tasks.length}, ${duration(level.tick_ms)} each: ${number(tasks)} deadlines`);
    });
  }

  // Moves the lines between two polls. Rings that turn faster than the page asks would only flicker: theirs stand still.
  turn() {
    if (!this.node.isConnected) {
      this.frame = null;
      return;
    }
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches || performance.now() - this.received > 2 * INTERVAL_MS;
    const now = this.state.now_ms + (still ? 0 : performance.now() - this.received);
    this.state.levels.forEach((level, index) => {
      const time = level.interval_ms < 2 * INTERVAL_MS ? this.state.now_ms : now;
      const angle = ((time % level.interval_ms) / level.interval_ms) * 360;
      setAttribute(this.rings[index].hand, "transform", `rotate(${angle.toFixed(2)} ${CENTRE} ${CENTRE})`);
    });
    this.frame = setTimeout(() => requestAnimationFrame(() => this.turn()), FRAME_MS);
  }
}

// The ring's piece from `place` to `place` + 1 of `count`, with a title.
function bucket(inner, outer, place, count) {
  const [from, to] = [place, place + 1].map((step) => (step / count) * 2 * Math.PI);
  const large = count < 2 ? 1 : 0;
  const path =
    `M${point(inner, from)}L${point(outer, from)}A${outer} ${outer} 0 ${large} 1 ${point(outer, to)}` +
    `L${point(inner, to)}A${inner} ${inner} 0 ${large} 0 ${point(inner, from)}Z`;
  return svg("path", { class: "bucket", d: path }, svg("title"));
}

function point(radius, angle) {
  return `${(CENTRE + radius * Math.sin(angle)).toFixed(2)} ${(CENTRE - radius * Math.cos(angle)).toFixed(2)}`;
}
