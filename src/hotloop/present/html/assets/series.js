// The iterations over the run: speed, time per iteration, and what the time was made of. One crosshair for all.

const CHART = { left: 62, right: 14, top: 8, bottom: 24 };

function showSeries() {
  const history = DATA.history;
  const box = byId("charts");
  if (!history) {
    box.append(make("p.muted", "No iterations were counted. Call hotloop.step() once per iteration to see speed, warm-up and trends here."));
    return;
  }
  byId("series-words").append(...history.words.map((words) => make("li", words)));
  const p = history.points;
  const last = p.first.length - 1;
  const middles = p.first.map((first, i) => first + (p.merged[i] - 1) / 2);
  const range = [p.first[0], p.first[last] + p.merged[last] - 1];
  const gathered = p.merged.some((count) => count > 1);
  const charts = [];
  if (p.per_second.length) {
    const title = p.rate === "env_steps" ? "Environment steps per second" : `${p.rate} per second`;
    charts.push({ title, height: 130, lines: [["line", p.per_second]], format: formatRate });
  }
  const peaks = p.largest.some((value, i) => value > p.seconds[i] * 1.0001);
  charts.push({
    title: ["Time per iteration", peaks ? "thin: the slowest of a point" : "", history.changes.length ? "dashed: its level changes" : ""].filter(Boolean).join("; "),
    height: 150,
    lines: [["line", p.seconds], ...(peaks ? [["peak", p.largest]] : [])], format: formatSeconds, warm: true, changes: history.changes,
  });
  if (p.stacked.length) charts.push(stackChart(p, history.percentiles.p50));
  const layers = p.stacked.map(([name], i) => ({ name: name < 0 ? plural(p.others, "other label") : nameOf(name), colour: name < 0 ? 7 : i % 7 }));
  const drawn = charts.map((chart) => {
    const holder = make("div.chart", make("p.caption", chart.title));
    const svg = draw("svg", { role: "img", tabindex: 0, "aria-label": `${chart.title}. Arrow keys move over the iterations.` });
    holder.append(svg);
    if (chart.legend) holder.append(stackLegend(layers));
    box.append(holder);
    return { ...chart, svg };
  });

  function render() {
    for (const chart of drawn) drawChart(chart, box.clientWidth, middles, range, history.warm_up);
  }

  function point(i, x, y) {
    const first = p.first[i];
    const title = p.merged[i] > 1 ? `iterations ${formatCount(first)} to ${formatCount(first + p.merged[i] - 1)}` : `iteration ${formatCount(first)}`;
    const lines = [`${formatSeconds(p.start_s[i])} after the first began${first < range[0] + history.warm_up ? ", warm-up" : ""}`];
    if (p.per_second.length && p.per_second[i] !== null) lines.push(`${p.rate === "env_steps" ? "SPS" : `${p.rate} per second`} ${formatRate(p.per_second[i])}`);
    lines.push(`${formatSeconds(p.seconds[i])} per iteration${peaks && p.merged[i] > 1 ? `, slowest ${formatSeconds(p.largest[i])}` : ""}`);
    layers.forEach((layer, k) => {
      const seconds = p.stacked[k][1][i];
      if (seconds) lines.push(`${layer.name}: ${formatSeconds(seconds)}`);
    });
    for (const chart of drawn) moveCross(chart, i, middles[i]);
    showTip(x, y, title, lines);
  }

  function leave() {
    hideTip();
    for (const chart of drawn) chart.cross?.setAttribute("visibility", "hidden");
  }

  for (const chart of drawn) onPoints(chart, middles, point, leave);
  if (gathered) box.append(make("p.muted.hint", "Some points stand for several neighbouring iterations and show their mean."));
  onResize(box, render);
}

// The points of a chart by pointer and arrow keys: `point` is told the number of one and where on the screen it is.
function onPoints(chart, places, point, leave) {
  chart.svg.addEventListener("pointermove", (event) => {
    const x = event.clientX - chart.svg.getBoundingClientRect().left;
    point(nearest(places.map(chart.xOf), x), event.clientX, event.clientY);
  });
  chart.svg.addEventListener("pointerleave", leave);
  chart.svg.addEventListener("blur", leave);
  chart.svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!step) return;
    event.preventDefault();
    chart.at = Math.max(0, Math.min(places.length - 1, (chart.at ?? -1) + step));
    const edge = chart.svg.getBoundingClientRect();
    point(chart.at, edge.left + chart.xOf(places[chart.at]), edge.top + 10);
  });
}

// Beside the labels the iteration itself, as far as both can be read at one scale: it may be nearly all waiting.
function stackChart(p, median) {
  const stack = p.stacked.map(([, values]) => values);
  const most = Math.max(...p.seconds.map((_, i) => stack.reduce((sum, layer) => sum + (layer[i] || 0), 0)));
  const comparable = most > 0.25 * median;
  const high = Math.max(most, comparable ? 1.25 * median : 0);
  const wall = comparable ? "line: the iteration’s wall time, where it fits" : `an iteration takes ${formatSeconds(median)} in the median, far above this scale`;
  return {
    title: `What an iteration is made of: time in each label itself, summed over the threads of its process (${wall})`,
    height: 190, stack, format: formatSeconds, legend: true,
    lines: comparable ? [["wall", p.seconds.map((value) => (value > 1.05 * high ? null : value))]] : [],
  };
}

function drawChart(chart, width, middles, range, warmUp) {
  const { left, right, top, bottom } = CHART;
  const inner = { width: Math.max(10, width - left - right), height: chart.height - top - bottom };
  const sums = chart.stack ? middles.map((_, i) => chart.stack.reduce((sum, layer) => sum + (layer[i] || 0), 0)) : [];
  const most = Math.max(...sums, ...chart.lines.flatMap(([, values]) => values.map((v) => v || 0)), 1e-12);
  const ticks = ticksUpTo(most);
  const high = ticks[ticks.length - 1];
  const span = Math.max(1e-9, range[1] - range[0]);
  chart.xOf = (at) => left + (range[1] === range[0] ? 0.5 : (at - range[0]) / span) * inner.width;
  chart.yOf = (value) => top + inner.height * (1 - value / high);
  const parts = [];
  if (chart.warm && warmUp > 0) {
    const edge = Math.min(chart.xOf(range[0] + warmUp - 0.5), left + inner.width);
    parts.push(draw("rect", { class: "warm", x: left, y: top, width: Math.max(2, edge - left), height: inner.height }));
    parts.push(draw("text", { x: Math.max(left + 4, edge + 4), y: top + 10 }, `warm-up: ${plural(warmUp, "iteration")}`));
  }
  for (const at of chart.changes || []) {
    const x = chart.xOf(at - 0.5);
    parts.push(draw("line", { class: "change", x1: x, x2: x, y1: top, y2: top + inner.height }));
  }
  parts.push(...gridOf(chart, ticks, inner.width));
  const steps = niceStep(Math.max(1, span / Math.max(2, inner.width / 110)));
  for (let at = Math.ceil(range[0] / steps) * steps; at <= range[1]; at += steps) {
    parts.push(draw("text", { x: chart.xOf(at), y: chart.height - 7, "text-anchor": "middle" }, formatCount(at)));
  }
  if (chart.stack) parts.push(...stackAreas(chart, middles));
  for (const [kind, values] of chart.lines) parts.push(draw("path", { class: kind, d: lineOf(chart, middles, values) }));
  putTogether(chart, width, inner.height, parts);
}

function gridOf(chart, ticks, width) {
  return ticks.flatMap((tick) => [
    draw("line", { class: "grid", x1: CHART.left, x2: CHART.left + width, y1: chart.yOf(tick), y2: chart.yOf(tick) }),
    draw("text", { x: CHART.left - 7, y: chart.yOf(tick) + 4, "text-anchor": "end" }, tick ? chart.format(tick) : "0"),
  ]);
}

// The parts in place of what was drawn before, with a new crosshair above them.
function putTogether(chart, width, innerHeight, parts) {
  const { top } = CHART;
  chart.cross = draw("g", { visibility: "hidden" });
  chart.cross.append(draw("line", { class: "cross", x1: 0, x2: 0, y1: top, y2: top + innerHeight }), draw("circle", { class: "dot", r: 3.5 }));
  chart.svg.setAttribute("viewBox", `0 0 ${width} ${chart.height}`);
  chart.svg.setAttribute("height", chart.height);
  chart.svg.replaceChildren(...parts, chart.cross);
}

function lineOf(chart, middles, values) {
  let path = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value === null) {
      pen = "M";
      return;
    }
    path += `${pen}${chart.xOf(middles[i]).toFixed(1)} ${chart.yOf(value).toFixed(1)}`;
    pen = "L";
  });
  return values.length === 1 ? `${path}h1` : path;
}

function stackAreas(chart, middles) {
  const base = middles.map(() => 0);
  return chart.stack.map((layer, k) => {
    const lower = middles.map((at, i) => `${chart.xOf(at).toFixed(1)} ${chart.yOf(base[i]).toFixed(1)}`);
    layer.forEach((value, i) => (base[i] += value || 0));
    const upper = middles.map((at, i) => `${chart.xOf(at).toFixed(1)} ${chart.yOf(base[i]).toFixed(1)}`);
    const area = draw("path", { d: `M${upper.join("L")}L${lower.reverse().join("L")}Z` });
    area.style.fill = `var(--c${k >= 7 ? 7 : k})`;
    return area;
  });
}

function stackLegend(layers) {
  return make("div.legend", ...layers.map((layer) => {
    const sample = make("i.sample");
    sample.style.backgroundColor = `var(--c${layer.colour})`;
    return make("span", sample, make("span.name.clip", layer.name));
  }));
}

function moveCross(chart, i, at) {
  const value = chart.lines.length ? chart.lines[0][1][i] : null;
  chart.cross.setAttribute("visibility", "visible");
  chart.cross.setAttribute("transform", `translate(${chart.xOf(at)} 0)`);
  chart.cross.lastChild.setAttribute("cy", value === null ? -99 : chart.yOf(value));
}

function nearest(sorted, value) {
  const after = sorted.findIndex((other) => other >= value);
  if (after < 0) return sorted.length - 1;
  return after && value - sorted[after - 1] < sorted[after] - value ? after - 1 : after;
}

// Three to five round values from zero to above the largest.
function ticksUpTo(most) {
  const step = niceStep(most / 4);
  const ticks = [];
  for (let i = 0; i === 0 || ticks[i - 1] < most; i++) ticks.push(i * step);
  return ticks;
}
