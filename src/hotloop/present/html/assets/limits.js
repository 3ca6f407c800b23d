// Limits: what each phase is spent on, what would be left of it, and what networks and optimizers cost at other sizes.

const MECHANISMS = ["interpreting", "dispatching", "computing", "moving", "waiting", "garbage", "starting"];
const CURVE = { height: 190, bottom: 40, label: 24 }; // the label of a point needs as much room below it

const mechanismClass = (name) => (name === "waiting" ? "k1" : `m${MECHANISMS.indexOf(name)}`);
const formatTimes = (value) => (value < 100 ? `${value.toFixed(2)} ×` : "over 100 ×");

function showLimits() {
  const limits = DATA.limits;
  if (!showSection("limits", limits !== null)) return;
  byId("limits-said").append(make("b", `${limits.said[0].toUpperCase()}${limits.said.slice(1)}.`));
  const head = make("tr", make("th", "Phase"), make("th", "Time"), make("th", "Limit"), make("th", "Headroom"));
  const table = make("table.limits", make("thead", head), make("tbody", ...limits.rows.flatMap(limitLines)));
  byId("limits-phases").append(mechanismLegend(limits.spent), make("div.scroll", table));
  if (limits.more_rows) byId("limits-phases").append(make("p.muted.hint", `Not shown: ${plural(limits.more_rows, "phase")} below 0.5 % of the loop.`));
  table.querySelectorAll(".stack").forEach(fitLabels);
  showMeasured(limits);
}

// ---- phases by mechanism

function mechanismLegend(spent) {
  const items = spent.map(([name, ns, share]) => make("span", make(`i.sample.${mechanismClass(name)}`), make("b", name), ` ${formatShare(share)} · ${formatTime(ns)}`));
  return make("div.legend", make("span.muted", "The whole loop, without HotLoop’s own cost:"), ...items);
}

// The numbers of a phase, and below them its time as a bar.
function limitLines(row) {
  const name = make("th.left", row.name);
  name.scope = "row";
  const numbers = make("tr.numbers", name, make("td", formatTime(row.ns)), make("td", formatTime(row.limit_ns)), make("td", formatTimes(row.headroom)));
  const parts = row.spent.map(([mechanism, ns, share]) => `${mechanism} ${formatShare(share)}, ${formatTime(ns)}`);
  const describe = () => [`${row.name}, ${formatTime(row.ns)}`, [...parts,
    row.batched_ns < row.limit_ns ? `with more samples per call ${formatTime(row.batched_ns)} would be left` : ""]];
  const stack = make("div.stack.thin", ...row.spent.map(([mechanism, ns, share]) =>
    segmentOf(`div.${mechanismClass(mechanism)}`, `${mechanism} ${formatShare(share)}`, ns, describe)));
  stack.tabIndex = 0;
  stack.setAttribute("role", "img");
  stack.setAttribute("aria-label", `${row.name} is spent on ${parts.join("; ")}`);
  addTip(stack, describe);
  const cell = make("td", stack);
  cell.colSpan = 4;
  return [numbers, make("tr.spent", cell)];
}

// ---- what was measured after the run

function showMeasured(limits) {
  const box = byId("limits-measured");
  if (limits.curves.length) {
    box.append(make("p.caption", "Cost of a network call against its rows"),
      make("p.muted", "Measured after the run, on copies of your networks. A point is the median of its calls, its bar their spread."));
    const charts = make("div.curves");
    box.append(charts);
    for (const curve of limits.curves) showCurve(charts, curve);
    if (limits.more_curves) box.append(make("p.muted.hint", `and ${plural(limits.more_curves, "more curve")}`));
  }
  if (limits.optimizers.length) {
    box.append(make("p.caption", "Cost of an optimizer’s step"), make("p.muted", "Measured after the run, on copies of your optimizers."),
      make("ul.plain", ...limits.optimizers.map((text) => make("li", text))));
    if (limits.more_optimizers) box.append(make("p.muted.hint", `and ${plural(limits.more_optimizers, "more optimizer")}`));
  }
}

function showCurve(box, curve) {
  const rows = curve.points.map(([count]) => count);
  const costs = curve.points.map(([, ns]) => ns);
  const isNow = (i) => (i === curve.now ? ", as in the run" : "");
  const said = curve.points.map(([count, ns], i) => `${plural(count, "row")} ${formatTime(ns)}${isNow(i)}`);
  const svg = draw("svg", {
    role: "img", tabindex: 0,
    "aria-label": `${curve.phase}, ${curve.name}: cost of a call against its rows. ${said.join("; ")}. Arrow keys move over the points.`,
  });
  const chart = { svg, height: CURVE.height, format: formatTime, lines: [["line", costs]] };
  const holder = make("div.chart", make("p.caption", `${curve.phase}, `, make("span.name", curve.name)), make("p", curve.said), svg);
  box.append(holder);
  onPoints(chart, rows, (i, x, y) => {
    const [count, ns, spread] = curve.points[i];
    moveCross(chart, i, count);
    showTip(x, y, plural(count, "row") + isNow(i), [`${formatTime(ns)} a call, ± ${formatTime(spread)}`, `${formatTime(ns / count)} a row`]);
  }, () => {
    hideTip();
    chart.cross.setAttribute("visibility", "hidden");
  });
  onResize(holder, () => drawCurve(chart, holder.clientWidth, curve, rows, costs));
}

function drawCurve(chart, width, curve, rows, costs) {
  const { left, right, top } = CHART;
  const inner = { width: Math.max(10, width - left - right), height: chart.height - top - CURVE.bottom };
  const [low, high] = [rows[0], rows[rows.length - 1]].map(Math.log);
  const ticks = ticksUpTo(Math.max(...curve.points.map(([, ns, spread]) => ns + spread)));
  chart.xOf = (count) => left + 12 + (high > low ? (Math.log(count) - low) / (high - low) : 0.5) * (inner.width - 24);
  chart.yOf = (ns) => top + inner.height * (1 - ns / ticks[ticks.length - 1]);
  const floor = top + inner.height;
  const parts = gridOf(chart, ticks, inner.width);
  parts.push(...rowTicks(chart, rows, floor), draw("text", { x: left + inner.width, y: chart.height - 6, "text-anchor": "end" }, "rows per call"));
  parts.push(draw("path", { class: "line", d: lineOf(chart, rows, costs) }));
  curve.points.forEach(([count, ns, spread], i) => {
    const x = chart.xOf(count);
    parts.push(draw("line", { class: "spread", x1: x, x2: x, y1: chart.yOf(ns + spread), y2: chart.yOf(Math.max(0, ns - spread)) }));
    parts.push(draw("circle", { class: i === curve.now ? "dot now" : "dot", cx: x, cy: chart.yOf(ns), r: i === curve.now ? 4 : 3.5 }));
  });
  if (curve.now >= 0) parts.push(nowLabel(chart, curve.points[curve.now], floor, left + inner.width / 2));
  putTogether(chart, width, inner.height, parts);
}

// The rows that were measured, as far as their numbers do not touch.
function rowTicks(chart, rows, floor) {
  let free = -Infinity;
  return rows.flatMap((count) => {
    const [x, text] = [chart.xOf(count), formatCount(count)];
    const half = 3.5 * text.length + 3;
    if (x - half < free) return [];
    free = x + half;
    return [draw("text", { x, y: floor + 16, "text-anchor": "middle" }, text)];
  });
}

// Below its point where there is room, since costs grow to the right; else above it.
function nowLabel(chart, [count, ns, spread], floor, middle) {
  const lowest = chart.yOf(Math.max(0, ns - spread));
  const y = floor - lowest > CURVE.label ? lowest + 18 : Math.max(CHART.top + 10, chart.yOf(ns + spread) - 24);
  const x = chart.xOf(count);
  return draw("text", { class: "here", x: x <= middle ? x - 8 : x + 8, y, "text-anchor": x <= middle ? "start" : "end" }, `the run: ${plural(count, "row")}, ${formatTime(ns)}`);
}
