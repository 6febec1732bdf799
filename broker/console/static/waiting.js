// What waits: the timing wheel, and each purgatory with what waits in it, for whom, why, and until when.

import { element, setText } from "./elements.js";
import { duration, number } from "./formats.js";
import { ask } from "./polling.js";
import { Table } from "./tables.js";
import { Wheel } from "./wheel.js";

const ROWS = 50;
const MEANINGS = {
  Produce: "Produce requests whose records are not replicated or flushed as their acks require.",
  Fetch: "Fetch requests that found fewer bytes than they ask for.",
  DeleteRecords: "DeleteRecords requests that other replicas have not followed yet.",
  Heartbeat: "Sessions of group members, and member ids that were assigned.",
  Rebalance: "Groups whose members must rejoin, synchronize or give up partitions.",
  topic: "Changes of topics that the controller makes.",
  ElectLeader: "Elections whose leaders this broker does not know yet.",
};
const NOBODY = {
  Produce: "a coordinator of this broker",
  topic: "the controller",
  ElectLeader: "the controller",
};

export class WaitingView {
  constructor() {
    this.wheel = new Wheel();
    this.purgatories = new Map();
    this.list = element("div", { class: "purgatories" });
    this.node = element("div", {}, element("h1", {}, "Waiting"), this.wheel.node, this.list);
  }

  async poll() {
    const [state, waiting] = await Promise.all([ask("wheel"), ask("waiting", { limit: ROWS })]);
    this.wheel.update(state);
    for (const purgatory of waiting.purgatories) this.purgatory(purgatory.name).update(purgatory);
  }

  purgatory(name) {
    let found = this.purgatories.get(name);
    if (found === undefined) {
      found = new Purgatory(name);
      this.purgatories.set(name, found);
      this.list.append(found.node);
    }
    return found;
  }
}

class Purgatory {
  constructor(name) {
    this.count = element("span", { class: "count" });
    this.table = new Table(
      `Waiting in purgatory ${name}`,
      [
        { title: "For whom", text: (row) => row.clients.map(client).join("; ") || NOBODY[name] || "–" },
        { title: "Connection", text: (row) => row.clients.map(connection).join("; ") || "–" },
        { title: "Why", text: (row) => row.why },
        { title: "Waited", text: (row) => duration(row.waited_ms), kind: "number" },
        { title: "Until", text: (row) => `in ${duration(row.left_ms)}`, kind: "number" },
      ],
      (row) => `${row.deadline_ms} ${row.keys.join()} ${row.clients.map(identity).join()}`,
    );
    this.leftOff = element("p", { class: "pager" });
    this.node = element(
      "section",
      { "aria-label": `Purgatory ${name}` },
      element("h2", {}, name, this.count),
      element("p", { class: "lead" }, MEANINGS[name] ?? ""),
      this.table.node,
      this.leftOff,
    );
  }

  update(purgatory) {
    const { waiting, completed, expired, left_off: leftOff } = purgatory;
    setText(this.count, `${number(waiting)} waiting · ${number(completed)} completed · ${number(expired)} expired`);
    this.table.update(purgatory.rows);
    this.table.node.hidden = purgatory.rows.length === 0;
    setText(this.leftOff, leftOff ? `${number(leftOff)} more wait; these are the soonest.` : "");
    this.leftOff.hidden = !leftOff;
  }
}

function client(row) {
  const name = row.client_id === null ? "a client without id" : row.client_id || "a client with an empty id";
  return row.request === null ? name : `${name} (${row.request})`;
}

function connection(row) {
  return row.connection === null ? row.address : `${row.address} (no. ${row.connection})`;
}

function identity(row) {
  return `${row.connection} ${row.correlation_id} ${row.member_id}`;
}
