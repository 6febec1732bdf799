// Tables whose rows are updated in place: what has the focus, and what is selected, stays.

import { draw, sparkline } from "./charts.js";
import { element, setAttribute, setClass, setText } from "./elements.js";
import { number } from "./formats.js";

// A column: `title`; `text(row)`; maybe `kind` ("number", "short"), `href(row)`, `state(row)` ("bad", "warn"),
// `history(row)`, the values of a sparkline instead of a text.
export class Table {
  constructor(caption, columns, keyOf, nothing = "Nothing here.") {
    this.columns = columns;
    this.keyOf = keyOf;
    this.rows = new Map();
    this.body = element("tbody");
    const heads = columns.map((column) =>
      element("th", { scope: "col", class: column.kind === "number" ? "number" : null }, column.title),
    );
    this.table = element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...heads)), this.body);
    this.empty = element("p", { class: "empty" }, nothing);
    this.node = element("div", { class: "framed", tabindex: "0", role: "region", "aria-label": caption }, this.table, this.empty);
  }

  update(rows) {
    const before = this.rows;
    this.rows = new Map();
    rows.forEach((row, index) => {
      const key = `${this.keyOf(row)}`;
      let line = before.get(key);
      if (line === undefined || this.rows.has(key)) line = element("tr", {}, ...this.columns.map(newCell));
      before.delete(key);
      this.rows.set(this.rows.has(key) ? `${key} ${index}` : key, line);
      this.columns.forEach((column, place) => updateCell(line.children[place], column, row));
      if (this.body.children[index] !== line) this.body.insertBefore(line, this.body.children[index] ?? null);
    });
    while (this.body.children.length > rows.length) this.body.lastElementChild.remove();
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
  }
}

function newCell(column) {
  const cell = element("td");
  if (column.history) cell.append(sparkline());
  else if (column.href) cell.append(element("a", { href: "#" }));
  return cell;
}

function updateCell(cell, column, row) {
  setClass(cell, [column.kind, column.state?.(row)].filter(Boolean).join(" "));
  if (column.history) {
    draw(cell.firstChild, column.history(row));
    return;
  }
  const text = `${column.text(row) ?? "–"}`;
  if (column.href) {
    setAttribute(cell.firstChild, "href", column.href(row));
    setText(cell.firstChild, text);
  } else {
    setText(cell, text);
  }
}

// The pages of a long table: which rows are shown, how many are left off, and two buttons.
export class Pager {
  constructor(changed, size = 100) {
    this.offset = 0;
    this.size = size;
    this.changed = changed;
    this.text = element("span", { class: "rows" });
    this.previous = element("button", { type: "button" }, "Previous");
    this.next = element("button", { type: "button" }, "Next");
    this.previous.addEventListener("click", () => this.go(-this.size));
    this.next.addEventListener("click", () => this.go(this.size));
    this.node = element("div", { class: "pager" }, this.previous, this.next, this.text);
  }

  go(rows) {
    this.offset = Math.max(this.offset + rows, 0);
    this.changed();
  }

  update(list) {
    const { offset, matching, total, rows, left_off: leftOff } = list;
    const last = offset + rows.length;
    const shown = rows.length ? `${number(offset + 1)}–${number(last)} of ${number(matching)}` : `0 of ${number(matching)}`;
    setText(this.text, matching < total ? `${shown} that match, ${number(total)} in all` : shown);
    this.previous.disabled = offset === 0;
    this.next.disabled = leftOff === 0;
  }
}

// A field to search by name.
export function searchField(label, changed) {
  const field = element("input", { type: "search", placeholder: label, "aria-label": label, maxlength: "256", spellcheck: "false" });
  field.addEventListener("input", changed);
  return field;
}
