// What the timeline draws: blocks read from their columns, colours, and words and ticks that fit.

function readBlocks(source) {
  const labels = source.labels.map(([name, kind]) => ({ name: nameOf(name), kind, total: 0, colour: 0 }));
  const spans = new Map(source.spans);
  let lane = -1;
  let start = 0;
  const blocks = source.dur.map((dur, i) => {
    start = source.lane[i] === lane ? start + source.start[i] : source.start[i];
    lane = source.lane[i];
    const label = labels[source.label[i]];
    label.total += dur;
    return { lane, row: source.row[i], start, dur, label, spans: spans.has(i) ? spans.get(i) : 1 };
  });
  // Colours in order of size; waits have their own, what was only handed over is neutral.
  let next = 0;
  for (const label of labels.slice().sort((a, b) => b.total - a.total)) {
    label.colour = { 1: 7, 2: 7, 3: 1 }[label.kind] ?? next++ % 7;
  }
  return blocks;
}

function readColours() {
  const colours = { panel: colourOf("panel"), muted: colourOf("muted"), line: colourOf("line"), soft: colourOf("soft"), mark: colourOf("mark") };
  colours.choice = colourOf("accent").replace("rgb(", "rgba(").replace(")", ", 0.25)");
  colours.fill = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => colourOf(`c${i}`));
  colours.text = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => (i === 4 ? colourOf("on-work") : colourOf("on-other")));
  // Waits: the waiting colour with the grain it has everywhere.
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const g = tile.getContext("2d");
  g.fillStyle = colourOf("waiting");
  g.fillRect(0, 0, 6, 6);
  g.fillStyle = colourOf("grain");
  g.fillRect(2, 2, 2, 2);
  colours.waitFill = g.createPattern(tile, "repeat");
  return colours;
}

function addWindowButtons(source, look) {
  const windows = source.windows;
  const shown = windows.length > 7 ? [...windows.slice(0, 3), ...windows.slice(-4)] : windows;
  byId("timeline-windows").hidden = windows.length < 2;
  if (windows.length < 2) return;
  byId("timeline-windows").append(...shown.map(([first, last, from, to]) => {
    const name = first === last ? `Iteration ${formatCount(first)}` : `Iterations ${formatCount(first)}–${formatCount(last)}`;
    const button = makeButton(name, () => look(from, to));
    Object.assign(button.dataset, { from, to });
    return button;
  }));
}

function sayWhatIsDrawn(source) {
  const recorded = DATA.quality.recorded + DATA.quality.open;
  if (!source.there) return "No single events were kept in this session, so there is no timeline; the sheet holds all the time.";
  const merged = source.drawn - source.dur.length;
  const parts = [];
  if (recorded === source.drawn) {
    parts.push(`All ${plural(recorded, "recorded span")} and waits are drawn.`);
  } else {
    parts.push(`${plural(recorded, "span")} and waits were recorded, and ${formatCount(source.there)} of them kept one by one.`);
    if (source.there === source.drawn) parts.push("All of these are drawn.");
    else parts.push(`${formatCount(source.drawn)} are drawn: the first iterations and the latest; ${formatCount(source.there - source.drawn)} are left out.`);
  }
  if (merged > 0) parts.push(`Short neighbours are drawn as one: ${plural(source.dur.length, "block")}.`);
  return parts.join(" ");
}

function iterationAt(marks, ns) {
  const latest = marks.findLast(([, start]) => start <= ns);
  return latest ? latest[0] : null;
}

// About 6.2 pixels a character at 11 pixels: measuring every block would cost more than drawing it.
function fitText(text, pixels) {
  const room = Math.floor(pixels / 6.2);
  if (text.length <= room) return text;
  return room < 3 ? "" : `${text.slice(0, room - 1)}…`;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

function formatTick(ns, step) {
  const [divisor, unit] = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
  const digits = Math.max(0, Math.min(3, -Math.floor(Math.log10(step / divisor) + 1e-9)));
  return `${(ns / divisor).toFixed(digits)} ${unit}`;
}
