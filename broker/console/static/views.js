// The views that are tables, and the overview.

import { draw, sparkline } from "./charts.js";
import { element, setClass, setText } from "./elements.js";
import { bytes, duration, number, rate } from "./formats.js";
import { ask, remember } from "./polling.js";
import { Pager, searchField, Table } from "./tables.js";

const link = (view, name) => `#/${view}/${encodeURIComponent(name)}`;

// --- the overview

const FIGURES = [
  ["Partitions led", (now) => now.partitions.led],
  ["Partitions followed", (now) => now.partitions.followed],
  ["Replicas in sync", (now) => now.partitions.in_sync_of_led, (now) => `${number(now.partitions.in_sync_of_led)} of ${number(now.partitions.replicas_of_led)}`],
  ["Under-replicated", (now) => now.partitions.under_replicated, null, true],
  ["Under min.insync.replicas", (now) => now.partitions.under_min_isr, null, true],
  ["Offline", (now) => now.partitions.offline, null, true],
  ["ISR shrinks", (now) => now.partitions.isr_shrinks],
  ["ISR expands", (now) => now.partitions.isr_expands],
  ["Topics", (now) => now.topics],
  ["Groups", (now) => now.groups],
  ["Transactional ids", (now) => now.transactional_ids],
  ["Connections", (now) => now.connections],
  ["Deadlines in the wheel", (now) => now.timers],
  ["Received", (now, before) => perSecond(now, before, "bytes_in"), (_now, value) => rate(value)],
  ["Sent", (now, before) => perSecond(now, before, "bytes_out"), (_now, value) => rate(value)],
];
let latest = null;

// Keeps what an answer of /api/overview says; every poll asks for it, whatever view is shown.
export function rememberOverview(now) {
  latest = {
    now,
    figures: FIGURES.map(([title, read, text]) => {
      const value = read(now, latest?.now ?? null);
      return { value, text: text ? text(now, value) : number(value), values: remember(`overview ${title}`, value) };
    }),
  };
}

// The rate of a counter; null if there is no earlier answer of the same start of the broker.
function perSecond(now, before, name) {
  if (!before || now.now_ms <= before.now_ms || now[name] < before[name]) return null;
  return ((now[name] - before[name]) * 1000) / (now.now_ms - before.now_ms);
}

export class OverviewView {
  constructor() {
    this.figures = FIGURES.map(([title]) => {
      const value = element("div", { class: "value" });
      const chart = sparkline();
      return { value, chart, node: element("div", { class: "figure" }, element("dt", {}, title), element("dd", {}, value, chart)) };
    });
    this.brokers = new Table(
      "Brokers of the cluster",
      [
        { title: "Broker", text: (row) => row.id, kind: "number" },
        { title: "Role", text: (row) => (row.is_controller ? "controller" : "broker") },
        { title: "Rack", text: (row) => row.rack },
        { title: "Addresses", text: (row) => row.addresses.join(", ") },
      ],
      (row) => row.id,
    );
    this.node = element(
      "div",
      {},
      element("h1", {}, "Overview"),
      element("dl", { class: "figures" }, ...this.figures.map((figure) => figure.node)),
      element("h2", {}, "Brokers"),
      this.brokers.node,
    );
  }

  async poll() {
    if (latest === null) return;
    latest.figures.forEach(({ value, text, values }, index) => {
      const figure = this.figures[index];
      setText(figure.value, text);
      setClass(figure.node, FIGURES[index][3] && value > 0 ? "figure bad" : "figure");
      draw(figure.chart, values);
    });
    this.brokers.update(latest.now.brokers);
  }
}

// --- lists

// A title, a field to search, a table and its pages.
class ListView {
  constructor({ title, lead, path, search, columns, key = (row) => row.name, name = null, back = null }, changed) {
    this.path = path;
    this.name = name;
    this.pager = new Pager(changed);
    this.search = search === null ? null : searchField(search, () => {
      this.pager.offset = 0;
      changed();
    });
    this.table = new Table(title, columns, key);
    this.node = element("div", {}, element("h1", {}, title));
    if (back) this.node.prepend(element("p", {}, element("a", { href: back.href }, `← ${back.text}`)));
    if (lead) this.node.append(element("p", { class: "lead" }, lead));
    if (this.search) this.node.append(element("div", { class: "bar" }, this.search));
    this.node.append(this.table.node, this.pager.node);
  }

  async poll() {
    const parameters = { offset: this.pager.offset, limit: this.pager.size };
    if (this.search?.value) parameters.search = this.search.value;
    if (this.name !== null) parameters.name = this.name;
    const list = await ask(this.path, parameters);
    this.table.update(list.rows);
    this.pager.update(list);
  }
}

// Several lists of one thing.
class Lists {
  constructor(...lists) {
    this.lists = lists;
    this.node = element("div", {}, ...lists.map((list) => list.node));
  }

  async poll() {
    await Promise.all(this.lists.map((list) => list.poll()));
  }
}

export const topics = (changed) => new ListView({
  title: "Topics",
  lead: "Sizes and offsets are those of this broker's replicas.",
  path: "topics",
  search: "Search topics",
  columns: [
    { title: "Topic", text: (row) => row.name, href: (row) => link("topic", row.name) },
    { title: "Partitions", text: (row) => number(row.partitions), kind: "number" },
    { title: "Replicas", text: (row) => number(row.replication_factor), kind: "number" },
    { title: "Led here", text: (row) => number(row.led_here), kind: "number" },
    { title: "Under-replicated", text: (row) => number(row.under_replicated), kind: "number", state: (row) => row.under_replicated > 0 && "bad" },
    { title: "Without leader", text: (row) => number(row.leaderless), kind: "number", state: (row) => row.leaderless > 0 && "bad" },
    { title: "Offsets", text: (row) => number(row.offsets_here), kind: "number" },
    { title: "Size", text: (row) => bytes(row.size_bytes), kind: "number" },
    { title: "Appended, over time", text: () => "", history: (row) => increases(`topic ${row.name}`, row.bytes_in) },
    { title: "Own settings", text: (row) => Object.entries(row.settings).map(([name, value]) => `${name}=${value ?? "hidden"}`).join(", ") || "–" },
  ],
}, changed);

// How much a counter grew from each poll to the next. It begins at 0 when the broker has started again.
function increases(name, value) {
  const values = remember(name, value);
  return values.slice(1).map((each, index) => each - (each < values[index] ? 0 : values[index]));
}

export const topic = (name, changed) => new ListView({
  title: name,
  path: "partitions",
  name,
  search: null,
  back: { href: "#/topics", text: "Topics" },
  key: (row) => row.partition,
  columns: [
    { title: "Partition", text: (row) => row.partition, kind: "number" },
    { title: "Leader", text: (row) => row.leader ?? "none", kind: "number", state: (row) => row.leader === null && "bad" },
    { title: "Replicas", text: (row) => row.replicas.join(", "), kind: "short" },
    { title: "In sync", text: (row) => row.isr.join(", "), kind: "short", state: (row) => row.isr.length < row.replicas.length && "warn" },
    { title: "In sync, over time", text: () => "", history: (row) => remember(`isr ${name} ${row.partition}`, row.isr.length) },
    { title: "Here", text: (row) => row.role ?? "no replica", kind: "short" },
    { title: "Start", text: (row) => number(row.log_start_offset), kind: "number" },
    { title: "High watermark", text: (row) => number(row.high_watermark), kind: "number" },
    { title: "End", text: (row) => number(row.log_end_offset), kind: "number" },
    { title: "Size", text: (row) => bytes(row.size_bytes), kind: "number" },
    { title: "Segments", text: (row) => number(row.segments), kind: "number" },
    { title: "Followers", text: (row) => row.followers.map(follower).join("; ") || "–" },
  ],
}, changed);

function follower(row) {
  const ago = row.caught_up_ms_ago === null ? "never caught up" : `caught up ${duration(row.caught_up_ms_ago)} ago`;
  return `broker ${row.broker_id} at ${number(row.log_end_offset)}, ${ago}`;
}

export const groups = (changed) => new ListView({
  title: "Groups",
  lead: "The groups that this broker coordinates. The lag counts partitions that it leads.",
  path: "groups",
  search: "Search groups",
  columns: [
    { title: "Group", text: (row) => row.name, href: (row) => link("group", row.name) },
    { title: "Type", text: (row) => row.type, kind: "short" },
    { title: "State", text: (row) => row.state, kind: "short", state: (row) => /Rebalance$|ing$/.test(row.state) && "warn" },
    { title: "Members", text: (row) => number(row.members), kind: "number" },
    { title: "Protocol", text: (row) => row.protocol || "–" },
    { title: "Generation", text: generation, kind: "number" },
    { title: "Partitions", text: (row) => number(row.committed_partitions), kind: "number" },
    { title: "Lag", text: lag, kind: "number" },
    { title: "Lag, over time", text: () => "", history: (row) => remember(`lag ${row.name}`, row.lag) },
  ],
}, changed);

// A consumer group's assignment may be of an earlier generation: the next one is to be computed.
function generation(row) {
  const behind = row.target_generation !== null && row.target_generation < row.generation;
  return behind ? `${number(row.generation)}, assigned ${number(row.target_generation)}` : number(row.generation);
}

function lag(row) {
  return row.lag_unknown_partitions ? `${number(row.lag)} + ${number(row.lag_unknown_partitions)} unknown` : number(row.lag);
}

export const group = (name, changed) => new Lists(
  new ListView({
    title: name,
    lead: "Members",
    path: "members",
    name,
    search: null,
    back: { href: "#/groups", text: "Groups" },
    key: (row) => row.member_id,
    columns: [
      { title: "Client id", text: (row) => row.client_id },
      { title: "Address", text: (row) => row.client_host, kind: "short" },
      { title: "Member id", text: (row) => row.member_id },
      { title: "Instance id", text: (row) => row.instance_id },
      { title: "Role", text: (row) => (row.speaks ? `${row.speaks} member` : row.is_leader ? "leader" : "member"), kind: "short" },
      { title: "Epoch", text: (row) => number(row.epoch), kind: "number" },
      { title: "Partitions", text: (row) => (row.partitions ? some(row) : null) },
      { title: "Waits for", text: (row) => row.waits_for },
      { title: "Session left", text: (row) => duration(row.session_left_ms), kind: "number" },
      { title: "Session", text: (row) => duration(row.session_timeout_ms), kind: "number" },
    ],
  }, changed),
  new ListView({
    title: "Partitions on their way",
    lead: "What members of a consumer group must give up, and who waits for it. The broker removes a member that is late.",
    path: "handovers",
    name,
    search: "Search topics",
    key: (row) => `${row.topic} ${row.partition}`,
    columns: [
      { title: "Topic", text: (row) => row.topic },
      { title: "Partition", text: (row) => row.partition, kind: "number" },
      { title: "From", text: (row) => member(row.from_client, row.from_member) ?? "nobody" },
      { title: "State", text: (row) => row.state, kind: "short", state: (row) => row.state === "told" && "warn" },
      { title: "Until", text: (row) => (row.left_ms === null ? null : `in ${duration(row.left_ms)}`), kind: "number" },
      { title: "To", text: (row) => member(row.to_client, row.to_member) ?? "nobody" },
    ],
  }, changed),
  new ListView({
    title: "Committed offsets",
    path: "offsets",
    name,
    search: "Search topics",
    key: (row) => `${row.topic} ${row.partition}`,
    columns: [
      { title: "Topic", text: (row) => row.topic },
      { title: "Partition", text: (row) => row.partition, kind: "number" },
      { title: "Committed", text: (row) => number(row.committed), kind: "number" },
      { title: "Lag", text: (row) => number(row.lag), kind: "number" },
      { title: "Lag, over time", text: () => "", history: (row) => remember(`lag ${name} ${row.topic} ${row.partition}`, row.lag) },
    ],
  }, changed),
);

function member(client, id) {
  return id === null ? null : `${client} (${id})`;
}

function some(row) {
  return row.partitions.join(", ") + (row.partitions_left_off ? ` and ${number(row.partitions_left_off)} more` : "") || "–";
}

export const transactions = (changed) => new ListView({
  title: "Transactions",
  lead: "The transactional ids that this broker coordinates.",
  path: "transactions",
  search: "Search transactional ids",
  columns: [
    { title: "Transactional id", text: (row) => row.name },
    { title: "State", text: (row) => (row.changes_to ? `${row.state} → ${row.changes_to}` : row.state), kind: "short" },
    { title: "Open for", text: (row) => duration(row.open_ms), kind: "number", state: (row) => row.open_ms > row.timeout_ms && "warn" },
    { title: "Timeout", text: (row) => duration(row.timeout_ms), kind: "number" },
    { title: "Producer", text: producer, kind: "number" },
    { title: "Version", text: (row) => row.version, kind: "number" },
    { title: "Partitions", text: some },
  ],
}, changed);

function producer(row) {
  const then = row.next_producer_id === null ? "" : `, then ${row.next_producer_id}`;
  return `${row.producer_id}, epoch ${row.producer_epoch}${then}`;
}

export const connections = (changed) => new ListView({
  title: "Connections",
  lead: "A client id is known while a request of the connection waits.",
  path: "connections",
  search: "Search address, principal, software",
  key: (row) => row.number,
  columns: [
    { title: "No.", text: (row) => row.number, kind: "number" },
    { title: "Address", text: (row) => row.address, kind: "short" },
    { title: "Client id", text: (row) => row.client_id },
    { title: "Software", text: (row) => [row.software, row.software_version].filter(Boolean).join(" ") || "–" },
    { title: "Principal", text: (row) => row.principal },
    { title: "Listener", text: (row) => `${row.listener} (${row.security_protocol})`, kind: "short" },
    { title: "Unanswered", text: (row) => number(row.unanswered), kind: "number" },
    { title: "In flight", text: (row) => bytes(row.in_flight_bytes), kind: "number" },
    { title: "Silent for", text: (row) => duration(row.silent_ms), kind: "number" },
    { title: "Not read because", text: (row) => row.not_read.join(", ") || "–", state: (row) => row.not_read.length > 0 && "warn" },
  ],
}, changed);

export const clients = (changed) => new ListView({
  title: "Clients",
  lead: "The clients that may push metrics of their own, if odradek.client.metrics.enable is set.",
  path: "clients",
  search: "Search client ids, instances, software",
  columns: [
    { title: "Client id", text: (row) => row.client_id ?? "–" },
    { title: "Instance", text: (row) => row.name, href: (row) => link("client", row.name) },
    { title: "Software", text: (row) => `${row.software} ${row.software_version}` },
    { title: "Address", text: (row) => row.address, kind: "short" },
    { title: "Says of itself", text: (row) => pairs(row.attributes) || "–" },
    { title: "Is to push", text: (row) => row.metrics.join(", ") + (row.metrics_left_off ? ` and ${number(row.metrics_left_off)} more` : "") || "–" },
    { title: "Every", text: (row) => duration(row.interval_ms), kind: "number" },
    { title: "Pushed", text: (row) => (row.pushed_ms_ago === null ? "never" : `${duration(row.pushed_ms_ago)} ago`), kind: "number" },
    { title: "Forgotten in", text: (row) => duration(row.forgotten_in_ms), kind: "number" },
    { title: "Series", text: (row) => number(row.series), kind: "number" },
  ],
}, changed);

export const client = (name, changed) => new ListView({
  title: name,
  lead: "What the client has pushed.",
  path: "series",
  name,
  search: "Search metrics and labels",
  back: { href: "#/clients", text: "Clients" },
  key: (row) => `${row.name} ${pairs(row.labels)}`,
  columns: [
    { title: "Metric", text: (row) => row.name },
    { title: "Labels", text: (row) => pairs(row.labels) || "–" },
    { title: "Kind", text: (row) => row.kind, kind: "short" },
    { title: "Value", text: measured, kind: "number" },
    { title: "Over time", text: () => "", history: (row) => remember(`series ${name} ${row.name} ${pairs(row.labels)}`, row.value) },
  ],
}, changed);

function pairs(labels) {
  return Object.entries(labels).map(([label, value]) => `${label}=${value}`).join(", ");
}

function measured(row) {
  return row.kind === "histogram" ? `${number(row.count)} values, sum ${row.sum ?? "–"}` : row.value ?? "–";
}

export const settings = (changed) => new ListView({
  title: "Settings",
  lead: "Broker settings that differ from their defaults. Secrets are hidden, as clients see them.",
  path: "settings",
  search: "Search settings",
  columns: [
    { title: "Setting", text: (row) => row.name },
    { title: "Value", text: (row) => (row.is_sensitive ? "hidden" : row.value) },
    { title: "Default", text: (row) => (row.default === null ? "–" : row.default || "empty") },
    { title: "From", text: (row) => row.source.toLowerCase().replaceAll("_", " ") },
    { title: "What it does", text: (row) => row.documentation },
  ],
}, changed);
