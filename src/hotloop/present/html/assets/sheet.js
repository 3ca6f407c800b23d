// The balance sheet: the four totals, who owns the time, and the tree.

const SHEET = DATA.sheet && readSheet(DATA.sheet);
const FIRST_ROWS = 26; // as many rows are open at first as a person takes in

// Rows with their children, where each begins within the wall time, and what it is made of: nanoseconds per kind and way.
function readSheet(columns) {
  const rows = columns.parent.map((parent, i) => ({
    index: i, parent, children: [], name: nameOf(columns.name[i]), kind: columns.kind[i], inferred: columns.inferred[i] === 1,
    ns: columns.ns[i], share: columns.share[i], calls: columns.calls[i], busy: columns.busy_ns[i], start: 0, depth: 0,
    parts: new Array(8).fill(0),
  }));
  for (const row of rows.slice(1)) rows[row.parent].children.push(row);
  for (const index of columns.groups) rows[index].isGroup = true;
  for (const row of rows) {
    let at = row.start;
    for (const child of row.children) {
      child.depth = row.depth + 1;
      child.start = at;
      at += child.ns;
    }
  }
  for (const row of rows.slice().reverse()) {
    if (!row.children.length) row.parts[2 * row.kind + (row.inferred ? 1 : 0)] = row.ns;
    if (row.parent >= 0) row.parts.forEach((ns, i) => (rows[row.parent].parts[i] += ns));
  }
  return rows;
}

function describeRow(row) {
  const kind = row.children.length ? describeParts(row) : KINDS[row.kind];
  return [row.name, [
    `${formatShare(row.share)} of wall, ${formatTime(row.ns)}`,
    row.calls ? plural(row.calls, "call") : "",
    row.busy ? `thread-time ${formatTime(row.busy)}` : "",
    (row.inferred ? "≈ inferred: " : "") + kind,
  ]];
}

function describeParts(row) {
  return KINDS.map((kind, i) => [kind, row.parts[2 * i] + row.parts[2 * i + 1]])
    .filter(([, ns]) => ns > 0)
    .map(([kind, ns]) => `${kind} ${formatTime(ns)}`)
    .join(", ");
}

function showTotals() {
  if (!DATA.totals) return byId("totals").append(make("p.note", "The main track has recorded nothing yet."));
  const stack = make("div.stack");
  const legend = make("div.legend");
  DATA.totals.forEach((total, kind) => {
    const inferred = total.inferred_ns ? `, of which ${formatShare(total.inferred_share)} ≈ inferred` : "";
    legend.append(make("span", make(`i.sample.k${kind}`), make("b", KINDS[kind]), ` ${formatShare(total.share)} · ${formatTime(total.ns)}${inferred}`));
    const direct = [total.ns - total.inferred_ns, total.share - total.inferred_share, ""];
    for (const [ns, share, way] of [direct, [total.inferred_ns, total.inferred_share, ".inferred"]]) {
      if (!ns) continue;
      const describe = () => [KINDS[kind], [`${formatShare(share)} of wall, ${formatTime(ns)}`, way ? "≈ inferred" : "measured directly"]];
      stack.append(segmentOf(`div.k${kind}${way}`, `${way ? "≈ " : ""}${KINDS[kind]} ${formatShare(share)}`, ns, describe));
    }
  });
  byId("totals").append(stack, legend);
  fitLabels(stack);
}

function showOwners() {
  if (!DATA.owners) return;
  const stack = make("div.stack.thin");
  const legend = make("div.legend");
  let next = 0;
  for (const [name, ns, share] of DATA.owners) {
    const kind = KINDS.indexOf(name);
    const colour = kind > 0 ? null : name === "unknown" ? 7 : next++ % 7;
    const paint = (element) => (colour === null ? element.classList.add(`k${kind}`) : (element.style.backgroundColor = `var(--c${colour})`));
    const segment = segmentOf("div", `${name} ${formatShare(share)}`, ns, () => [name, [`${formatShare(share)} of wall, ${formatTime(ns)}`]]);
    const sample = make("i.sample");
    paint(segment);
    paint(sample);
    stack.append(segment);
    legend.append(make("span", sample, make("b", name), ` ${formatShare(share)}`));
  }
  byId("owners").append(make("p.caption", "By whose code was running"), stack, legend);
  fitLabels(stack);
}

// A label that does not fit is left out: the legend has it.
function fitLabels(stack) {
  onResize(stack, () => {
    for (const segment of stack.children) {
      const label = segment.firstChild;
      segment.classList.remove("tight");
      label.hidden = false;
      label.hidden = label.scrollWidth > label.clientWidth || segment.clientWidth < 24;
      segment.classList.toggle("tight", label.hidden);
    }
  });
}

function showTree() {
  if (!SHEET) return;
  const open = openAtFirst();
  const body = make("tbody");
  const head = ["", "", "Share", "Time", "Calls", "Thread-time"].map((text) => make("th", text));
  head[0].textContent = "Name";
  const table = make("table.tree", make("thead", make("tr", ...head)), body);
  table.setAttribute("role", "treegrid");
  table.setAttribute("aria-label", "Balance sheet");
  byId("tree").append(table);

  function render(focus = -1) {
    const lines = [];
    const add = (row) => {
      lines.push(treeLine(row, open.has(row.index)));
      if (open.has(row.index)) row.children.forEach(add);
    };
    add(SHEET[0]);
    body.replaceChildren(...lines);
    const at = lines.find((line) => line.dataset.row === String(focus)) || lines[0];
    at.tabIndex = 0;
    if (focus >= 0) at.focus({ preventScroll: true });
  }

  function toggle(line) {
    const index = Number(line.dataset.row);
    if (open.has(index)) open.delete(index);
    else if (SHEET[index].children.length) open.add(index);
    else return;
    render(index);
  }

  body.addEventListener("click", (event) => {
    const line = event.target.closest("tr");
    if (line) toggle(line);
  });
  body.addEventListener("keydown", (event) => {
    const line = event.target.closest("tr");
    const index = Number(line.dataset.row);
    const move = (to) => {
      if (!to) return;
      line.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    };
    const keys = {
      ArrowDown: () => move(line.nextSibling),
      ArrowUp: () => move(line.previousSibling),
      ArrowRight: () => (open.has(index) ? move(line.nextSibling) : toggle(line)),
      ArrowLeft: () => (open.has(index) ? toggle(line) : move(body.querySelector(`[data-row="${SHEET[index].parent}"]`))),
      Enter: () => toggle(line),
      " ": () => toggle(line),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  byId("sheet-open").addEventListener("click", () => {
    for (const row of SHEET) if (row.children.length) open.add(row.index);
    render();
  });
  byId("sheet-close").addEventListener("click", () => {
    open.clear();
    open.add(0);
    render();
  });
  const { there, kept } = DATA.sheet;
  byId("sheet-said").textContent = there > kept
    ? `The tree has ${formatCount(there)} rows. About ${formatCount(kept)} are here; the smallest are gathered into rows “(… more)”, with their time.`
    : "";
  render();
}

// The largest rows are opened first, until the tree fills a screen.
function openAtFirst() {
  const open = new Set();
  const queue = [SHEET[0]];
  let shown = 1;
  while (queue.length) {
    queue.sort((a, b) => b.ns - a.ns);
    const row = queue.shift();
    if (shown + row.children.length > FIRST_ROWS && row.index) break;
    open.add(row.index);
    shown += row.children.length;
    queue.push(...row.children.filter((child) => child.children.length && child.share >= 5 && !child.isGroup));
  }
  return open;
}

function treeLine(row, isOpen) {
  const twist = make("span.twist", row.children.length ? (isOpen ? "▾" : "▸") : "");
  const sample = make(`i.sample.k${row.kind}${row.inferred ? ".inferred" : ""}`);
  const label = make("td.label.indent", twist, ...(row.children.length ? [] : [sample]), (row.inferred ? "≈ " : "") + row.name);
  label.style.setProperty("--depth", Math.min(row.depth, 14));
  const line = make(row.isGroup ? "tr.gathered" : "tr", label, make("td", sheetBar(row)), make("td", formatShare(row.share)), make("td", formatTime(row.ns)),
    make("td.dim", row.calls ? formatCount(row.calls) : ""), make("td.dim", row.busy ? formatTime(row.busy) : ""));
  line.dataset.row = row.index;
  line.tabIndex = -1;
  line.setAttribute("aria-level", row.depth + 1);
  if (row.children.length) line.setAttribute("aria-expanded", isOpen);
  addTip(line, () => describeRow(row));
  return line;
}

// The bar lies where its part of the wall time lies, so that the bars below a row tile it.
function sheetBar(row) {
  const classes = row.parts.map((_, i) => `.k${i >> 1}${i & 1 ? ".inferred" : ""}`);
  return partsBar(row.parts, classes, SHEET[0].ns || 1, row.start);
}
