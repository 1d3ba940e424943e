// Numbers as people read them, and rates from counts that were read one after the other.

const KEPT = 90;

export function amount(value) {
  return value === undefined || value === null ? "–" : value.toLocaleString("en");
}

export function span(ms) {
  if (ms === undefined || ms === null) return "–";
  const sign = ms < 0 ? "−" : "";
  const s = Math.abs(ms) / 1000;
  if (s < 1) return `${sign}${Math.round(s * 1000)} ms`;
  if (s < 60) return `${sign}${s.toFixed(1)} s`;
  if (s < 3600) return `${sign}${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${sign}${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${sign}${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function expiry(ms) {
  return ms < 0 ? `overdue by ${span(-ms)}` : `in ${span(ms)}`;
}

export function clockTime(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

// One count over time. If it or the time falls, the node began again: so does the line.
export class Rate {
  constructor() {
    this.points = [];
    this.last = null;
  }

  add(count, atMs) {
    const last = this.last;
    this.last = { count, atMs };
    if (last !== null && (count < last.count || atMs < last.atMs)) this.points = [];
    else if (last !== null && atMs > last.atMs) this.push((count - last.count) * 1000 / (atMs - last.atMs));
  }

  push(rate) {
    this.points.push(rate);
    if (this.points.length > KEPT) this.points.shift();
  }

  get now() {
    return this.points.length ? this.points[this.points.length - 1] : null;
  }

  text() {
    const now = this.now;
    if (now === null) return "–";
    return `${now < 10 && now > 0 ? now.toFixed(1) : Math.round(now).toLocaleString("en")} /s`;
  }

  // Points of a polyline in a box of `width` by `height`, the newest at the right edge.
  line(width, height) {
    const top = Math.max(1, ...this.points);
    const step = width / (KEPT - 1);
    const begin = width - (this.points.length - 1) * step;
    return this.points
      .map((rate, at) => {
        const x = begin + at * step;
        const y = height - 1 - (rate / top) * (height - 2);
        return `${x.toFixed(1)},${y.toFixed(1)}`;
      })
      .join(" ");
  }
}
