// The device and the deep window: facts, the spans that queued work, the lines that copied or waited, kernels by label.

const ROWS_AT_FIRST = 12;
const timeOrNothing = (ns) => (ns ? formatTime(ns) : "");

const SPAN_COLUMNS = [
  { title: "Span", key: "name", text: true },
  { title: "Calls", key: "calls", show: (o) => formatCount(o.calls) },
  { title: "Host", key: "host", show: (o) => timeOrNothing(o.host) },
  { title: "Device ≥", key: "sure", show: (o) => timeOrNothing(o.sure) },
  { title: "Device ≤", key: "most", show: (o) => timeOrNothing(o.most) },
  { title: "Blocked in it", key: "blocked", show: (o) => timeOrNothing(o.blocked) },
  { title: "Waited for it", key: "waited", show: (o) => timeOrNothing(o.waited) },
];

const LINE_COLUMNS = [
  { title: "Copies and waits", key: "name", text: true },
  { title: "Call", key: "call", text: true },
  { title: "Direction", key: "direction", text: true },
  { title: "Count", key: "count", show: (o) => formatCount(o.count) },
  { title: "Blocking", key: "blocking", show: (o) => formatCount(o.blocking) },
  { title: "Pinned", key: "pinned", show: (o) => (o.bytes ? formatCount(o.pinned) : "") },
  { title: "Size", key: "bytes", show: (o) => (o.bytes ? formatSize(o.bytes) : "") },
  { title: "Time", key: "time", show: (o) => formatTime(o.time) },
];

const operatorColumns = (first, whole) => [
  { title: first, key: "name", text: true },
  { title: "In", key: "label", text: true },
  { title: "Calls", key: "calls", show: (o) => formatCount(o.calls) },
  { title: "Time", key: "time", show: (o) => formatTime(o.time) },
  { title: "Share", key: "time", show: (o) => formatShare(tenthsOf(o.time, whole)) },
];

const formatSize = (bytes) => (bytes < 1024 ? `${bytes} B` : formatBytes(bytes));
const formatRange = (low, high) => (low === high ? formatShare(low) : `${formatShare(low).slice(0, -2)}–${formatShare(high)}`);

// ---- device

function showDevice() {
  const d = DATA.device;
  if (!showSection("device", d !== null)) return;
  const names = [...d.names, ...(d.more_names ? [`${formatCount(d.more_names)} more`] : [])].join(", ");
  byId("device-names").append(make("b.name", names), d.processes > 1 ? `, used by ${formatCount(d.processes)} processes` : "");
  const facts = [["In use", formatTime(d.lifetime_ns)], ["Busy", formatShare(d.busy_least), "at least"]];
  if (d.idle) facts.push(["Idle", formatRange(...d.idle), "at least – at most"]);
  if (d.utilisation !== null) facts.push(["Utilisation", formatShare(d.utilisation), "by NVML"]);
  facts.push(["Host blocked", formatTime(d.blocked_ns)], ["Measured", formatShare(d.measured), "the rest is scaled"]);
  facts.push(["Own cost", `${(d.cost_share * 100).toFixed(2)} %`]);
  byId("device-facts").append(...facts.map(factCard));
  byId("device-idle").hidden = !d.idle_in.length;
  byId("device-idle").append("Idle while the host was in ", ...d.idle_in.flatMap(([name, share], i) =>
    [i ? ", " : "", make("b.name.clip", nameOf(name)), ` ${formatShare(share)}`]));
  const spans = d.spans.rows.map(([name, hostOnly, ...numbers]) => readSpan(nameOf(name), numbers, hostOnly === 1));
  const gathered = d.spans.gathered && readSpan(`(${formatCount(d.spans.gathered[0])} more)`, d.spans.gathered.slice(1));
  if (spans.length) byId("device-spans").append(sortedTable(SPAN_COLUMNS, "most", spans, gathered));
  byId("device-pairs").hidden = !d.pairs.length;
  byId("device-pairs").append(...d.pairs.map(([inside, owner, ns]) => make("li", make("b", formatTime(ns)),
    " blocked in ", make("b.name.clip", nameOf(inside)), " is for work queued in ", make("b.name.clip", nameOf(owner)))));
  showTransfers(d.lines);
  if (d.memory) showMemory(d.memory);
  byId("device-notes").hidden = !d.notes.length;
  byId("device-notes").append(...d.notes.map((note) => make("li", note)));
  if (d.more_notes) byId("device-notes").append(make("li", `and ${plural(d.more_notes, "more note")}`));
}

function readSpan(name, [calls, host, sure, most, blocked, copy, waited], hostOnly = false) {
  return {
    name, calls, host, sure, most, blocked, waited,
    tip: [hostOnly ? "queues no work: the device is idle meanwhile, once it has done the rest" : "", copy ? `${formatTime(copy)} of the blocking is its own copy` : ""],
  };
}

function showTransfers({ rows, gathered }) {
  if (!rows.length) return;
  const read = (name, call, direction, [count, blocking, pinned, bytes, time], tip) => ({ name, call, direction, count, blocking, pinned, bytes, time, tip });
  const lines = rows.map(([file, line, fn, call, direction, ...numbers]) =>
    read(file ? `${shortFile(file)}:${line} ${fn}` : fn, call, direction, numbers, [file ? `${file}:${line}` : "", fn]));
  const rest = gathered && read(`(${formatCount(gathered[0])} more)`, "", "", gathered.slice(1), []);
  byId("device-lines").append(sortedTable(LINE_COLUMNS, "time", lines, rest),
    make("p.muted.hint", "Time is the host’s in these calls. Blocking: how many it waited for. Pinned: how many used pinned memory, which a copy that does not block needs."));
}

function showMemory(memory) {
  const facts = [["Peak", formatBytes(memory.allocated), "in use"], ["Reserved", formatBytes(memory.reserved), "at most"]];
  if (memory.unused) facts.push(["Fragmentation", formatShare(memory.unused), "of the reserved not in use"]);
  if (memory.growth) facts.push(["Growth", formatBytes(memory.growth), "in the last third"]);
  const box = byId("device-memory");
  box.append(make("p.caption", "Memory of the device"), make("dl.cards", ...facts.map(factCard)));
  if (!memory.peaks.length) return;
  const most = Math.max(memory.reserved, ...memory.peaks.map(([, bytes]) => bytes), 1);
  const rows = memory.peaks.map(([name, bytes]) => [nameOf(name), bytes / most, formatBytes(bytes)]);
  const more = memory.more_peaks ? `, ${formatCount(memory.more_peaks)} smaller ones left out` : "";
  box.append(make("p.muted.hint", `Peaks of spans with track_memory=True, as parts of the reserved${more}`), barTable(rows));
}

// ---- deep window

function showOperators() {
  const o = DATA.operators;
  if (!showSection("operators", o !== null)) return;
  const onDevice = o.copies !== null;
  const facts = [["Deep window", formatTime(o.window_ns), o.iterations ? plural(o.iterations, "iteration") : ""], ["Operators", formatTime(o.operators_ns), "on the host"]];
  if (onDevice) facts.push(["Kernels", formatTime(o.kernels_ns), "on the device"], ["Copies", formatShare(o.copies), "of device time"]);
  if (o.idle !== null) facts.push(["Device without work", formatShare(o.idle), "of the window"]);
  facts.push(["Under a label", formatShare(o.folded), onDevice ? "of device time" : "of operator time"]);
  byId("operators-facts").append(...facts.map(factCard));
  const labels = o.labels.map(([name, ns, share]) => [nameOf(name), share / 1000, formatShare(share), formatTime(ns)]);
  if (labels.length) byId("operators-labels").append(make("p.caption", onDevice ? "The device’s time by label" : "The operators’ time by label"), barTable(labels));
  const read = (name, label, [calls, time]) => ({ name, label, calls, time, tip: [label ? `in ${label}` : ""] });
  const { rows, gathered } = o.rows;
  const lines = rows.map(([name, label, ...numbers]) => read(nameOf(name), nameOf(label), numbers));
  const rest = gathered && read(`(${formatCount(gathered[0])} more)`, "", gathered.slice(1));
  if (lines.length) byId("operators-rows").append(sortedTable(operatorColumns(onDevice ? "Kernel" : "Operator", o.whole_ns), "time", lines, rest));
}

// ---- tables

// Rows of { name, tip, … }, the largest first and a few at a time; what was gathered comes after the last.
function sortedTable(columns, key, rows, gathered) {
  const sort = { column: columns.find((column) => column.key === key), down: true };
  const body = make("tbody");
  const more = makeButton("", () => {
    limit += 5 * ROWS_AT_FIRST;
    render();
  });
  const tools = make("div.tools", more);
  let limit = ROWS_AT_FIRST;
  const cellsOf = (row) => columns.map((column, i) => (column.text ? make(i ? "td.site" : "td.label", row[column.key]) : make("td", column.show(row))));

  function render() {
    const shown = rows.slice().sort(comparison(sort.column, sort.down)).slice(0, limit);
    body.replaceChildren(...shown.map((row) => {
      const cells = cellsOf(row);
      addTip(cells[0], () => [row.name, row.tip]);
      return make("tr", ...cells);
    }));
    if (gathered && limit >= rows.length) body.append(make("tr.gathered", ...cellsOf(gathered)));
    tools.hidden = limit >= rows.length;
    more.textContent = `Show ${formatCount(Math.min(5 * ROWS_AT_FIRST, rows.length - limit))} more of ${formatCount(rows.length + (gathered ? 1 : 0))} rows`;
  }

  const head = sortingHead(columns, sort, render);
  render();
  return make("div", make("div.scroll", make("table.wide", head, body)), tools);
}

// Rows of [name, length of the bar from 0 to 1, text, …].
function barTable(rows) {
  return make("div.scroll", make("table.bars", make("tbody", ...rows.map(([name, part, ...texts]) => {
    const label = make("td.label", name);
    addTip(label, () => [name, [texts.join(", ")]]);
    return make("tr", label, make("td.lane", barOf([[".k0", 0, part]])), ...texts.map((text) => make("td", text)));
  }))));
}
