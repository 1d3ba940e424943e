// Runs the dashboard's scripts in a small document, for one named case. The document has text, no
// markup: whoever assigns markup to it fails.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , folder, wanted] = process.argv;
const HOSTILE = "<img src=x onerror=alert(1)>\"'&</script>";
const FORBIDDEN = ["innerHTML", "outerHTML", "insertAdjacentHTML", "srcdoc"];

class Item {
  constructor(tag) {
    this.tag = tag;
    this.kids = [];
    this.attributes = new Map();
    this.parent = null;
    this.hidden = false;
    const names = new Set();
    this.classList = { add: (n) => names.add(n), remove: (n) => names.delete(n), has: (n) => names.has(n) };
    for (const name of FORBIDDEN) {
      Object.defineProperty(this, name, { set() { throw new Error(`${name} was used`); } });
    }
  }
  setAttribute(name, value) {
    assert.ok(!name.toLowerCase().startsWith("on"), `${name} is code`);
    this.attributes.set(name, String(value));
  }
  getAttribute(name) { return this.attributes.get(name) ?? null; }
  get children() { return this.kids.filter((kid) => kid instanceof Item); }
  get lastElementChild() { return this.children.at(-1) ?? null; }
  append(...kids) {
    for (const kid of kids) {
      if (kid instanceof Item) kid.parent = this;
      this.kids.push(kid);
    }
  }
  remove() { this.parent.kids = this.parent.kids.filter((kid) => kid !== this); }
  replaceWith(other) {
    other.parent = this.parent;
    this.parent.kids = this.parent.kids.map((kid) => (kid === this ? other : kid));
  }
  get textContent() {
    return this.kids.map((kid) => (kid instanceof Item ? kid.textContent : kid)).join("");
  }
  set textContent(text) { this.kids = [String(text)]; }
  all(tag) { return this.children.flatMap((kid) => [...(kid.tag === tag ? [kid] : []), ...kid.all(tag)]); }
}

const body = new Item("body");
const places = {};
const page = readFileSync(`${folder}/index.html`, "utf8");
for (const [, tag, id] of page.matchAll(/<(\w+)[^>]*\bid="(\w+)"/g)) {
  places[id] = new Item(tag);
  body.append(places[id]);
}
globalThis.document = {
  title: "",
  body,
  getElementById: (id) => places[id],
  createElement: (tag) => new Item(tag),
  createElementNS: (_, tag) => new Item(tag),
};
let next = null;
globalThis.setTimeout = (run, ms) => {
  if (ms === 1000) next = run;
  return 0;
};
globalThis.clearTimeout = () => {};
let answer = () => ({ ok: true, json: async () => overview({}) });
globalThis.fetch = async (path) => {
  assert.equal(path, "/omnirelay/control/overview");
  return answer();
};

function report(changes = {}, counts = {}) {
  return {
    status: {
      shard: "q", isReady: true, leader: "n", epoch: 1, lastSequence: 9, pendingCount: 4,
      activeLeaseCount: 1, delayedCount: 0, deadLetterCount: 0, backpressure: false,
      journal: "memory", durability: "nothing", ...changes.status,
    },
    counts: { enqueued: 0, granted: 0, completed: 0, ...counts },
    holders: changes.holders ?? [], holderCount: (changes.holders ?? []).length,
    followers: changes.followers ?? [],
    ...(changes.lastTransition ? { lastTransition: changes.lastTransition } : {}),
  };
}

function overview(changes) {
  return {
    nodeId: "n", version: "1", uptimeMs: 1000, atMs: 1, urls: { http: "http://h" },
    isDraining: false, shards: [report()], ...changes,
  };
}

async function polled(said) {
  answer = typeof said === "function" ? said : () => ({ ok: true, json: async () => overview(said) });
  const run = next;
  next = null;
  await run();
  assert.notEqual(next, null, "it asks again, whatever happened");
}

const holder = (peerId, nextExpiryMs = 5000) =>
  ({ peerId, principal: HOSTILE, activeLeases: 2, oldestGrantMs: 61000, nextExpiryMs });
const shown = () => places.namespaces;
const rates = () => shown().all("strong").map((rate) => rate.textContent);

const cases = {
  async names_are_text() {
    const follower = { name: HOSTILE, position: 1, sequenceLag: 2, lagMs: 3, failures: 4, lastError: HOSTILE };
    const status = { shard: HOSTILE, leader: HOSTILE, journal: HOSTILE, trouble: HOSTILE, isReady: false };
    await polled({
      nodeId: HOSTILE, trouble: HOSTILE, urls: { http: HOSTILE },
      shards: [report({ status, holders: [holder(HOSTILE, -700)], followers: [follower] })],
    });
    const text = body.textContent;
    assert.ok(text.split(HOSTILE).length >= 9, text);
    assert.ok(text.includes("overdue by 700 ms"));
    for (const tag of ["img", "script"]) assert.equal(body.all(tag).length, 0);
  },
  async rates_follow_counts() {
    await polled({ uptimeMs: 2000, shards: [report({}, { completed: 5 })] });
    assert.deepEqual(rates(), ["0 /s", "0 /s", "5.0 /s"]);
    await polled({ uptimeMs: 4000, shards: [report({}, { completed: 2005, enqueued: 100000 })] });
    assert.deepEqual(rates(), ["50,000 /s", "0 /s", "1,000 /s"]);
    assert.equal(shown().all("polyline")[2].getAttribute("points").split(" ").length, 2);
  },
  async a_restart_begins_a_new_line() {
    await polled({ uptimeMs: 9000, shards: [report({}, { completed: 500 })] });
    await polled({ uptimeMs: 100, shards: [report({}, { completed: 1 })] });
    assert.deepEqual(rates(), ["–", "–", "–"]);
    for (let at = 1; at <= 200; at += 1) await polled({ uptimeMs: 100 + at * 1000, shards: [report()] });
    assert.ok(shown().all("polyline")[0].getAttribute("points").split(" ").length <= 90);
  },
  async silence_is_shown_and_ends() {
    assert.equal(places.stale.hidden, true);
    await polled(() => { throw new TypeError("fetch failed"); });
    assert.equal(places.stale.hidden, false);
    assert.match(places.stale.textContent, /^Stale since \d\d:\d\d:\d\d: the node does not answer$/);
    assert.ok(body.classList.has("is-stale"));
    const before = places.stale.textContent;
    await polled(() => { throw Object.assign(new Error("late"), { name: "AbortError" }); });
    assert.equal(places.stale.textContent, before);
    await polled({});
    assert.equal(places.stale.hidden, true);
    assert.ok(!body.classList.has("is-stale"));
  },
  async a_refusal_is_shown() {
    await polled(() => ({ ok: false, status: 403, json: async () => ({ message: HOSTILE }) }));
    assert.ok(places.stale.textContent.endsWith(HOSTILE));
    await polled(() => ({ ok: false, status: 502, json: async () => { throw new SyntaxError("no"); } }));
    assert.ok(places.stale.textContent.endsWith("the node answers 502"));
    await polled(() => ({ ok: true, json: async () => ({}) }));
    assert.equal(places.stale.hidden, false);
  },
  async rows_and_namespaces_come_and_go() {
    await polled({ shards: [report({ holders: [holder("a"), holder("b"), holder("c")] })] });
    const rows = () => shown().all("tbody")[0].children.map((row) => row.children[0].textContent);
    assert.deepEqual(rows(), ["a", "b", "c"]);
    const first = shown().all("tbody")[0].children[0];
    await polled({ shards: [report({ holders: [holder("b")] }), report({ status: { shard: "r" } })] });
    assert.deepEqual(rows(), ["b"]);
    assert.equal(shown().all("tbody")[0].children[0], first);
    assert.deepEqual(shown().all("h2").map((title) => title.textContent), ["q", "r"]);
    await polled({ shards: [report({ status: { shard: "r" } })] });
    assert.deepEqual(shown().all("h2").map((title) => title.textContent), ["r"]);
  },
  async trouble_and_draining_are_said() {
    assert.equal(places.state.textContent, "Ready.");
    await polled({ trouble: "q: the disk is full" });
    assert.equal(places.state.textContent, "Not ready: q: the disk is full");
    await polled({ isDraining: true, trouble: "the node is draining" });
    assert.match(places.state.textContent, /^Draining/);
    const lastTransition = { shard: "q", number: 1, state: "active", pendingCount: 10, atMs: 5 };
    const status = { backpressure: true, pendingHigh: 10, pendingLow: 2, pendingCount: 12 };
    await polled({ shards: [report({ status, lastTransition })] });
    const [bar] = shown().all("progress");
    assert.deepEqual([bar.max, bar.value], [10, 10]);
    assert.ok(shown().textContent.includes("from 10 pending down to 2; last change: active at "));
  },
  async spans_are_readable() {
    const { span, expiry, amount } = await import(pathToFileURL(`${folder}/figures.js`));
    const spans = [0, 999, 1000, 59900, 61000, 3723000, 90000000, -1500, undefined].map(span);
    assert.deepEqual(spans, [
      "0 ms", "999 ms", "1.0 s", "59.9 s", "1 min 1 s", "1 h 2 min", "1 d 1 h", "−1.5 s", "–",
    ]);
    assert.deepEqual([expiry(5000), expiry(-20)], ["in 5.0 s", "overdue by 20 ms"]);
    assert.deepEqual([amount(1234567), amount(null)], ["1,234,567", "–"]);
  },
};

await import(pathToFileURL(`${folder}/dashboard.js`));
while (next === null) await new Promise((resolve) => setImmediate(resolve));
await cases[wanted]();
