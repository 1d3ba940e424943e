// One namespace.

import { Rate, amount, expiry, span } from "./figures.js";
import { Sparkline, Table, Terms, element, setClass, setText } from "./parts.js";

const TILES = {
  pending: "Pending", active: "Active leases", delayed: "Delayed", dead: "Dead letters",
  oldest: "Oldest waiting",
};
const RATES = { enqueued: "Enqueued", granted: "Granted", completed: "Completed" };
const FACTS = {
  journal: "Journal", durability: "Survives", leader: "Writer", epoch: "Epoch",
  sequence: "Last sequence",
};

export class Shard {
  constructor() {
    this.title = element("h2");
    this.ready = element("span");
    this.pressure = element("span");
    this.why = element("p", { class: "why" });
    this.tiles = new Terms("tiles", TILES);
    this.bar = element("progress", { "aria-label": "Pending items up to the high mark" });
    this.marks = element("span");
    this.level = element("div", { class: "level" }, this.bar, this.marks);
    this.facts = new Terms("facts", FACTS);
    this.rates = new Map();
    this.lines = new Map();
    const figures = element("div", { class: "rates" });
    for (const [key, label] of Object.entries(RATES)) {
      this.rates.set(key, new Rate());
      this.lines.set(key, new Sparkline(label));
      figures.append(this.lines.get(key).root);
    }
    this.holders = new Table(
      "Holders", ["Peer", "Principal", "Leases", "Oldest lease", "Next expiry"],
      "Nobody holds a lease.",
    );
    this.followers = new Table(
      "Followers", ["Name", "Sequence", "Behind", "Lag", "Failures", "Last error"],
      "Nobody follows this journal.",
    );
    this.root = element(
      "section", { class: "shard" },
      element("div", { class: "head" }, this.title, this.ready, this.pressure),
      this.why, this.tiles.root, this.level, figures, this.facts.root,
      this.holders.root, this.followers.root,
    );
  }

  show(report, atMs) {
    const status = report.status;
    setText(this.title, status.shard);
    this.root.setAttribute("aria-label", `Namespace ${status.shard}`);
    this.showState(status, report.lastTransition);
    this.tiles.set("pending", amount(status.pendingCount));
    this.tiles.set("active", amount(status.activeLeaseCount));
    this.tiles.set("delayed", amount(status.delayedCount));
    this.tiles.set("dead", amount(status.deadLetterCount));
    this.tiles.set("oldest", status.pendingCount ? span(status.oldestPendingAgeMs) : "–");
    this.facts.set("journal", status.journal);
    this.facts.set("durability", status.durability);
    this.facts.set("leader", status.leader);
    this.facts.set("epoch", amount(status.epoch));
    this.facts.set("sequence", amount(status.lastSequence));
    for (const [key, rate] of this.rates) {
      rate.add(report.counts[key] ?? 0, atMs);
      this.lines.get(key).set(rate);
    }
    this.showHolders(report);
    this.showFollowers(report.followers);
  }

  showState(status, last) {
    setText(this.ready, status.isReady ? "serves" : "does not serve");
    setClass(this.ready, status.isReady ? "chip good" : "chip bad");
    setText(this.pressure, status.backpressure ? "backpressure" : "no backpressure");
    setClass(this.pressure, status.backpressure ? "chip warn" : "chip good");
    this.why.hidden = !status.trouble;
    setText(this.why, status.trouble ? `Why not: ${status.trouble}` : "");
    const high = status.pendingHigh;
    this.level.hidden = high === undefined && last === undefined;
    this.bar.hidden = high === undefined;
    const marks = [];
    if (high !== undefined) {
      this.bar.max = high;
      this.bar.value = Math.min(status.pendingCount, high);
      marks.push(`producers wait from ${amount(high)} pending down to ${amount(status.pendingLow ?? high)}`);
    }
    if (last !== undefined) {
      const when = new Date(last.atMs).toLocaleTimeString("en-GB");
      marks.push(`last change: ${last.state} at ${when} with ${amount(last.pendingCount)} pending`);
    }
    setText(this.marks, marks.join("; "));
  }

  showHolders(report) {
    const rows = report.holders.map((holder) => [
      holder.peerId, holder.principal, amount(holder.activeLeases), `${span(holder.oldestGrantMs)} ago`,
      [expiry(holder.nextExpiryMs), holder.nextExpiryMs < 0 ? "late" : ""],
    ]);
    const shown = rows.length < report.holderCount ? `, ${rows.length} shown` : "";
    this.holders.set(rows, `Holders (${amount(report.holderCount)}${shown})`);
  }

  showFollowers(followers) {
    const rows = followers.map((follower) => [
      follower.name, amount(follower.position), `${amount(follower.sequenceLag)} events`,
      span(follower.lagMs), amount(follower.failures),
      [follower.lastError ?? "", follower.lastError ? "late" : ""],
    ]);
    this.followers.set(rows, `Followers (${amount(rows.length)})`);
  }
}
