// Asks the node once a second and shows what it says, or since when it says nothing.

import { clockTime, span } from "./figures.js";
import { Terms, setClass, setText } from "./parts.js";
import { Shard } from "./shard.js";

const EVERY_MS = 1000;
const PATIENCE_MS = 4000;
const ADDRESS = "/omnirelay/control/overview";

const place = (id) => document.getElementById(id);
const facts = new Terms("facts", { version: "Version", uptime: "Up", urls: "Serves" });
place("facts").replaceWith(facts.root);

const shards = new Map();
let answeredAt = null;

function show(overview) {
  setText(place("node"), overview.nodeId);
  document.title = `OmniRelay – ${overview.nodeId}`;
  const state = place("state");
  if (overview.isDraining) {
    setClass(state, "state warn");
    setText(state, "Draining: takes no new work, finishes what is leased.");
  } else if (overview.trouble !== undefined) {
    setClass(state, "state bad");
    setText(state, `Not ready: ${overview.trouble}`);
  } else {
    setClass(state, "state good");
    setText(state, "Ready.");
  }
  facts.set("version", overview.version);
  facts.set("uptime", span(Math.floor(overview.uptimeMs / 1000) * 1000));
  facts.set("urls", Object.values(overview.urls).join("  "));
  showShards(overview);
}

function showShards(overview) {
  const names = new Set(overview.shards.map((report) => report.status.shard));
  for (const [name, shard] of shards) {
    if (!names.has(name)) {
      shard.root.remove();
      shards.delete(name);
    }
  }
  for (const report of overview.shards) {
    let shard = shards.get(report.status.shard);
    if (shard === undefined) {
      shard = new Shard();
      shards.set(report.status.shard, shard);
      place("namespaces").append(shard.root);
    }
    // The node's own time: a slow answer must not look like a slow queue.
    shard.show(report, overview.uptimeMs);
  }
}

function showStale(reason) {
  const stale = place("stale");
  document.body.classList.add("is-stale");
  stale.hidden = false;
  // Without the seconds since: a screen reader would say the line anew every second.
  const since = answeredAt === null ? "No answer yet" : `Stale since ${clockTime(answeredAt)}`;
  setText(stale, `${since}: ${reason}`);
}

function showFresh() {
  answeredAt = Date.now();
  document.body.classList.remove("is-stale");
  place("stale").hidden = true;
}

async function refusal(answer) {
  try {
    return (await answer.json()).message ?? `the node answers ${answer.status}`;
  } catch {
    return `the node answers ${answer.status}`;
  }
}

export async function poll() {
  const giveUp = new AbortController();
  const timer = setTimeout(() => giveUp.abort(), PATIENCE_MS);
  try {
    const answer = await fetch(ADDRESS, { signal: giveUp.signal, cache: "no-store" });
    if (!answer.ok) {
      showStale(await refusal(answer));
      return;
    }
    show(await answer.json());
    showFresh();
  } catch (error) {
    const silent = error.name === "AbortError" || error instanceof TypeError;
    showStale(silent ? "the node does not answer" : String(error));
  } finally {
    clearTimeout(timer);
    setTimeout(poll, EVERY_MS);
  }
}

poll();
