// Pieces of the page. Whatever comes from the node becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setClass(node, names) {
  if (node.getAttribute("class") !== names) node.setAttribute("class", names);
}

// Terms and their values; `set` fills them by key.
export class Terms {
  constructor(className, labels) {
    this.root = element("dl", { class: className });
    this.values = new Map();
    for (const [key, label] of Object.entries(labels)) {
      const value = element("dd");
      this.values.set(key, value);
      this.root.append(element("div", {}, element("dt", {}, label), value));
    }
  }

  set(key, text) {
    setText(this.values.get(key), text);
  }
}

// A rate as a number and a line. The line is for the eye only; the number says the same.
export class Sparkline {
  constructor(label) {
    this.output = element("strong");
    this.line = document.createElementNS(SVG, "polyline");
    const picture = document.createElementNS(SVG, "svg");
    picture.setAttribute("viewBox", "0 0 300 40");
    picture.setAttribute("preserveAspectRatio", "none");
    picture.setAttribute("aria-hidden", "true");
    picture.append(this.line);
    const caption = element("figcaption", {}, element("span", {}, label), this.output);
    this.root = element("figure", { class: "rate" }, caption, picture);
  }

  set(rate) {
    setText(this.output, rate.text());
    this.line.setAttribute("points", rate.line(300, 40));
  }
}

// A table whose rows are kept and refilled, so that a reader does not lose its place.
export class Table {
  constructor(caption, columns, empty) {
    this.caption = element("caption", {}, caption);
    const titles = columns.map((title) => element("th", { scope: "col" }, title));
    this.body = element("tbody");
    this.table = element(
      "table", {}, this.caption, element("thead", {}, element("tr", {}, ...titles)), this.body,
    );
    this.none = element("p", { class: "none" }, empty);
    this.box = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table);
    this.root = element("div", {}, this.box, this.none);
    this.columns = columns.length;
  }

  // Each row is a list of texts, or of [text, class] for a cell that stands out.
  set(rows, caption) {
    setText(this.caption, caption);
    this.box.hidden = rows.length === 0;
    this.none.hidden = rows.length > 0;
    while (this.body.children.length > rows.length) this.body.lastElementChild.remove();
    while (this.body.children.length < rows.length) this.body.append(this.emptyRow());
    rows.forEach((row, at) => this.fill(this.body.children[at], row));
  }

  emptyRow() {
    const cells = [element("th", { scope: "row" })];
    while (cells.length < this.columns) cells.push(element("td"));
    return element("tr", {}, ...cells);
  }

  fill(row, cells) {
    cells.forEach((cell, at) => {
      const [text, className] = Array.isArray(cell) ? cell : [cell, ""];
      setText(row.children[at], text);
      setClass(row.children[at], className);
    });
  }
}
