// Operations (sorted and filtered here), lanes, and the slowest iterations.

const ROWS_AT_ONCE = 100;

const COLUMNS = [
  { title: "Operation", key: "name", text: true },
  { title: "Site", key: "site", text: true },
  { title: "Calls", key: "calls", show: (o) => formatCount(o.calls) + (o.open ? ` + ${o.open} open` : "") },
  { title: "Busy", key: "busy", show: (o) => formatTime(o.busy) },
  { title: "Self", key: "self", show: (o) => formatTime(o.self) },
  { title: "Average", key: "average", show: (o) => formatTime(o.average) },
  { title: "p50", key: "p50", show: (o) => formatTime(o.p50) },
  { title: "p95", key: "p95", show: (o) => formatTime(o.p95) },
  { title: "Max", key: "max", show: (o) => formatTime(o.max) },
  { title: "Wall %", key: "share", show: (o) => (o.unionHigh > o.union ? `${formatShare(o.share).slice(0, -2)}–${formatShare(tenthsOf(o.unionHigh, DATA.session.wall_ns))}` : formatShare(o.share)) },
  { title: "Union", key: "union", show: (o) => (o.unionHigh > o.union ? `${formatTime(o.union)} – ${formatTime(o.unionHigh)}` : formatTime(o.union)) },
  { title: "Concurrency", key: "concurrency", show: (o) => o.concurrency.toFixed(2) },
  { title: "Memory", key: "memory", show: (o) => (o.memory < 0 ? "–" : (o.memoryExact ? "" : "~") + formatBytes(o.memory)) },
  { title: "GPU", key: "gpu", show: (o) => (o.gpu < 0 ? "–" : formatBytes(o.gpu)) },
];

function readOperations(c) {
  const extra = (list) => new Map(list.map(([i, ...rest]) => [i, rest]));
  const [high, open, memory, gpu] = [extra(c.union_high_ns), extra(c.open), extra(c.memory), extra(c.gpu)];
  const waits = new Set(c.wait);
  return c.name.map((name, i) => {
    const file = c.files[c.file[i]];
    const [busy, union, calls] = [c.busy_ns[i], c.union_ns[i], c.calls[i]];
    return {
      name: nameOf(name), wait: waits.has(i), fullSite: file ? `${file}:${c.line[i]}` : "", site: file ? `${shortFile(file)}:${c.line[i]}` : "",
      calls, busy, union, unionHigh: high.has(i) ? high.get(i)[0] : union, self: c.self_ns[i], average: calls ? busy / calls : 0,
      p50: c.p50_ns[i], p95: c.p95_ns[i], max: c.max_ns[i], share: tenthsOf(union, DATA.session.wall_ns),
      concurrency: union ? busy / union : 0, open: open.has(i) ? open.get(i)[0] : 0,
      memory: memory.has(i) ? memory.get(i)[0] : -1, memoryExact: memory.has(i) && memory.get(i)[1] === 1, gpu: gpu.has(i) ? gpu.get(i)[0] : -1,
    };
  });
}

const shortFile = (file) => file.split(/[/\\]/).slice(-2).join("/");

function showOperations() {
  const all = readOperations(DATA.operations);
  const gathered = DATA.operations.gathered;
  const [filter, waits, said, more] = ["filter", "waits", "said", "more"].map((part) => byId(`operations-${part}`));
  const used = COLUMNS.filter((column) => !["memory", "gpu", "site"].includes(column.key) || all.some((o) => o[column.key] !== -1 && o[column.key] !== ""));
  const body = make("tbody");
  const sort = { column: used.find((column) => column.key === "union"), down: true };
  const head = sortingHead(used, sort, () => {
    limit = ROWS_AT_ONCE;
    render();
  });
  let limit = ROWS_AT_ONCE;
  byId("operations-table").append(head, body);

  function render() {
    const text = filter.value.trim().toLowerCase();
    const asked = all.filter((o) => waits.checked || !o.wait);
    const match = (o) => o.name.toLowerCase().includes(text) || o.fullSite.toLowerCase().includes(text);
    const rows = asked.filter(match).sort(comparison(sort.column, sort.down));
    body.replaceChildren(...rows.slice(0, limit).map((o) => operationLine(o, used)));
    if (gathered && limit >= rows.length && !text) body.append(gatheredLine(gathered, used));
    const shown = Math.min(limit, rows.length);
    const matching = text ? ` ${rows.length === 1 ? "matches" : "match"} of ${formatCount(asked.length)}` : "";
    said.textContent = `${plural(rows.length, "operation")}${matching}, ${formatCount(shown)} shown` +
      (gathered ? `; ${plural(gathered.rows, "smaller one")} gathered in the last row` : "");
    more.parentNode.hidden = shown === rows.length;
    more.textContent = `Show ${formatCount(Math.min(5 * ROWS_AT_ONCE, rows.length - shown))} more`;
  }

  for (const input of [filter, waits]) {
    input.addEventListener("input", () => {
      limit = ROWS_AT_ONCE;
      render();
    });
  }
  more.addEventListener("click", () => {
    limit += 5 * ROWS_AT_ONCE;
    render();
  });
  render();
}

// A head whose buttons sort: `sort` says by what, and is changed before `changed` is called.
function sortingHead(columns, sort, changed) {
  const heads = columns.map((column) => {
    const button = makeButton("", () => {
      sort.down = sort.column === column ? !sort.down : !column.text;
      sort.column = column;
      mark();
      changed();
    });
    return make(column.text ? "th.left" : "th", button);
  });
  const mark = () => heads.forEach((head, i) => {
    head.removeAttribute("aria-sort");
    head.firstChild.textContent = columns[i].title;
    if (columns[i] !== sort.column) return;
    head.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
    head.firstChild.textContent = `${columns[i].title} ${sort.down ? "▾" : "▴"}`;
  });
  mark();
  return make("thead", make("tr", ...heads));
}

// Equal ones by name, so that an order never depends on the one before.
function comparison({ key }, down) {
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return (a, b) => (down ? order(b[key], a[key]) : order(a[key], b[key])) || order(a.name, b.name);
}

function operationLine(o, used) {
  const cells = used.map((column) => {
    if (column.key === "name") return make("td.label", make(`i.sample.small.k${o.wait ? 1 : 0}`), o.name);
    if (column.key === "site") return make("td.site", o.site);
    return make("td", column.show(o));
  });
  const line = make("tr", ...cells);
  addTip(cells[0], () => [o.name, [o.wait ? "a wait" : "", o.fullSite]]);
  return line;
}

function gatheredLine(gathered, used) {
  const shown = {
    name: `(${formatCount(gathered.rows)} more)`, calls: formatCount(gathered.calls), busy: formatTime(gathered.busy_ns), self: formatTime(gathered.self_ns),
  };
  return make("tr.gathered", ...used.map((column) => make(column.text ? "td.label.left" : "td", shown[column.key] || "")));
}

function showLanes() {
  const { rows, gathered } = DATA.lanes;
  const titles = ["Track", "", "Lifetime", "Work", "Waiting", "Unattributed", "Profiler", "Coverage", ""];
  const head = make("tr", ...titles.map((title) => make("th", title)));
  const lines = rows.map(([[owner, track], state, coverage, parts, shares]) =>
    laneLine(owner ? `${owner} · ${track}` : track, parts, shares, `${(coverage * 100).toFixed(1)} %`, state === "ended" ? "" : state));
  if (gathered) lines.push(laneLine(`(${formatCount(gathered[0])} more)`, gathered[1], gathered[2], "", ""));
  const table = make("table", make("thead", head), make("tbody", ...lines));
  table.id = "lanes-table";
  if (!lines.length) table.append(make("caption", "No track has recorded anything yet."));
  addSection("lanes", "Threads", "Each thread of each process: its four parts add up to its lifetime. Waiting for work that was handed over is waiting here as everywhere.",
    make("div.scroll", table));
}

function laneLine(name, parts, shares, coverage, state) {
  const whole = parts.reduce((sum, ns) => sum + ns, 0);
  const bar = partsBar(parts, KINDS.map((_, kind) => `.k${kind}`), whole || 1);
  const label = make("td.label", name);
  addTip(label, () => [name, parts.map((ns, kind) => `${KINDS[kind]} ${formatTime(ns)}`)]);
  const cells = shares.map((share) => make("td", formatShare(share)));
  return make("tr", label, make("td.lane", bar), make("td", formatTime(whole)), ...cells, make("td", coverage), make("td.bad", state));
}

function showSlowest() {
  const slowest = DATA.history ? DATA.history.slowest : [];
  if (!slowest.length) return;
  addSection("slowest", "Slowest iterations", "Thread-time in each path, over all threads of the process that counts the iterations, so idle workers are here too.", ...slowest.map((slow) => {
    const which = slow.merged > 1 ? `Iterations ${formatCount(slow.number)} to ${formatCount(slow.number + slow.merged - 1)}, mean` : `Iteration ${formatCount(slow.number)}`;
    const excess = slow.excess.map(([name, seconds]) => `${nameOf(name)} +${formatSeconds(seconds)}`).join(", ");
    const summary = make("summary", make("b", `${which}: ${formatSeconds(slow.seconds)}`),
      ` — ${slow.times_median.toFixed(2)} × the median${excess ? `. Above their median: ${excess}` : ""}`);
    return make("details", summary, slowTree(slow));
  }));
}

// The iteration's own balance sheet: every row is the sum of the rows below it.
function slowTree(slow) {
  const totals = slow.total_s;
  const most = Math.max(...totals, 1e-12);
  const below = new Map();
  slow.parent.forEach((parent, i) => below.set(parent, [...(below.get(parent) || []), i]));
  const body = make("tbody");
  const add = (i, depth) => {
    const label = make("td.label.indent", nameOf(slow.name[i]));
    label.style.setProperty("--depth", Math.min(depth, 14));
    const bar = barOf([[".any", 0, totals[i] / most]]);
    body.append(make("tr", label, make("td", formatSeconds(totals[i])), make("td", bar)));
    children(i, depth + 1);
  };
  const children = (i, depth) => (below.get(i) || []).sort((a, b) => totals[b] - totals[a]).forEach((child) => add(child, depth));
  children(-1, 0);
  return make("table", body);
}

const TABLES = [showOperations, showLanes, showSlowest]; // in the order of the page
