// The console: which view is shown, and when the broker is asked.

import { element, setText, visible } from "./elements.js";
import { ask, PATIENCE_MS, Polling } from "./polling.js";
import { startScheme } from "./scheme.js";
import { client, clients, connections, group, groups, OverviewView, rememberOverview, settings, topic, topics, transactions } from "./views.js";
import { WaitingView } from "./waiting.js";

const VIEWS = [
  ["overview", "Overview", () => new OverviewView()],
  ["waiting", "Waiting", () => new WaitingView()],
  ["topics", "Topics", topics],
  ["groups", "Groups", groups],
  ["transactions", "Transactions", transactions],
  ["connections", "Connections", connections],
  ["clients", "Clients", clients],
  ["settings", "Settings", settings],
];
const OF_ONE = { topic: ["topics", topic], group: ["groups", group], client: ["clients", client] };

const main = document.getElementById("main");
const status = document.getElementById("status");
const pause = document.getElementById("pause");
const broker = document.getElementById("broker");
const links = new Map();
let view = null;

for (const [name, title] of VIEWS) {
  const link = element("a", { href: `#/${name}` }, title);
  links.set(name, link);
  document.getElementById("views").append(element("li", {}, link));
}

const polling = new Polling(async () => {
  const shown = view;
  try {
    const now = await ask("overview");
    rememberOverview(now);
    setText(broker, `broker ${now.broker_id}${now.broker_id === now.controller_id ? ", controller" : ""}`);
    await shown.poll();
    say(polling.paused ? "paused" : "live", false);
  } catch (error) {
    say(reason(error), true);
  }
  main.setAttribute("aria-busy", "false");
});

function reason(error) {
  if (error.name === "TimeoutError") return `no answer in ${PATIENCE_MS / 1000} s`;
  return error instanceof TypeError ? "no connection" : error.message;
}

function say(text, isBad) {
  setText(status, text);
  status.classList.toggle("bad", isBad);
}

// The view of the address: #/topics, #/topic/NAME.
function show(isFirst) {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const changed = () => polling.now();
  const one = OF_ONE[name];
  const [current, title, make] = VIEWS.find(([each]) => each === (one ? one[0] : name)) ?? VIEWS[0];
  const thing = one ? decoded(rest.join("/")) : null;
  view = one && thing ? one[1](thing, changed) : make(changed);
  for (const [each, link] of links) {
    if (each === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${visible(thing ?? title)} · Odradek console`;
  main.setAttribute("aria-busy", "true");
  main.replaceChildren(view.node);
  if (!isFirst) main.focus({ preventScroll: true });
  scrollTo(0, 0);
  polling.now();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

pause.addEventListener("click", () => {
  const paused = pause.getAttribute("aria-pressed") !== "true";
  pause.setAttribute("aria-pressed", String(paused));
  polling.pause(paused);
  if (paused) say("paused", false);
});
startScheme(document.getElementById("scheme"));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => show(false));
show(true);
