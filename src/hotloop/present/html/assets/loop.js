// The training loop: what was found, the phases it consists of, the lines it was seen at.

const PHASE_COLOURS = { collect: 0, learn: 4, eval: 2, log: 3, checkpoint: 6, transfer: 1 };
const ALL_PHASES = "all";

// ---- findings

function showFindings() {
  const found = DATA.findings;
  if (!showSection("findings", found !== null)) return;
  const list = byId("findings-list");
  list.append(make("p.verdict", found.verdict));
  found.rows.forEach((finding, i) => list.append(findingCard(finding, i === 0)));
}

function findingCard(finding, open) {
  const [low, mid, high] = finding.gain.map((value) => `${value.toFixed(2)}×`);
  const head = make("div.finding-head",
    make(`span.badge.is-${finding.severity}`, finding.severity), make("span.cause", finding.cause),
    make("span.gain", make("b", `${mid} faster`), ` predicted, ${low} to ${high}`));
  const place = make("p.place", make("code", finding.where), finding.function ? " in " : "", make("code", finding.function),
    make("span.muted", ` · ${formatShare(finding.share)} of ${finding.shareOf}${finding.span ? ` · ${finding.span}` : ""}`));
  const card = make(`article.finding.is-${finding.severity}`, head, make("p.title", finding.title), place);
  if (finding.action) card.append(make("p", make("b", "Do: "), finding.action));
  if (finding.evidence.length || finding.verify) {
    const more = make("details", make("summary", "Evidence, and how to check it"), make("ul.plain", ...finding.evidence.map((text) => make("li", text))));
    if (finding.verify) more.append(make("p", "Check: ", make("code", finding.verify)));
    more.open = open;
    card.append(more);
  }
  return card;
}

// ---- phases

function paintPhase(element, row) {
  if (row.kind) element.classList.add(row.kind === "profiler" ? "k3" : "k2");
  else if (row.name === "wait") element.classList.add("k1");
  else element.style.backgroundColor = `var(--c${row.name in PHASE_COLOURS ? PHASE_COLOURS[row.name] : 7})`;
}

function describePhase(row) {
  return [row.name, [
    `${formatShare(row.share)} of the loop, ${formatTime(row.ns)}`,
    row.inferred_ns ? `≈ ${formatTime(row.inferred_ns)} of it inferred` : "measured directly",
    row.waiting_ns ? `${formatTime(row.waiting_ns)} of it waiting` : "",
  ]];
}

function showPhases() {
  const phases = DATA.phases;
  if (!showSection("phases", phases !== null)) return;
  byId("phases-said").textContent =
    `The training loop, from the first step to the last, took ${formatTime(phases.loop_ns)}; ${formatShare(phases.direct)} of it was measured directly.`;
  const stack = make("div.stack");
  for (const row of phases.rows) {
    for (const [ns, way] of [[row.ns - row.inferred_ns, ""], [row.inferred_ns, ".inferred"]]) {
      if (!ns) continue;
      const text = way ? `≈ ${row.name}` : `${row.name} ${formatShare(row.share)}`;
      const segment = segmentOf(`div.phase${row.name === "learn" ? ".dark" : ""}${way}`, text, ns, () => describePhase(row));
      paintPhase(segment, row);
      stack.append(segment);
    }
  }
  const head = ["Phase", "", "Share", "Time", "≈ inferred", "Waiting"].map((title) => make("th", title));
  const body = make("tbody");
  for (const row of phases.rows) {
    body.append(phaseLine(row, row, false));
    for (const part of row.parts) if (part.share || part.ns === row.ns) body.append(phaseLine(part, row, true));
  }
  if (phases.startup_ns) {
    const cells = [make("td.label", "start-up, shut-down"), make("td.lane", "outside the loop"), make("td"), make("td", formatTime(phases.startup_ns)), make("td"), make("td")];
    body.append(make("tr.outside", ...cells));
  }
  byId("phases-chart").append(stack, make("div.scroll", make("table.phases", make("thead", make("tr", ...head)), body)));
  fitLabels(stack);
}

function phaseLine(row, phase, isPart) {
  const sample = make("i.sample.small");
  paintPhase(sample, phase);
  const name = isPart ? make("td.label.part", row.inferred_ns ? `≈ ${row.name}` : row.name) : make("td.label", sample, make("b", row.name));
  const bar = barOf([[row.inferred_ns === row.ns ? ".inferred" : "", 0, row.ns / DATA.phases.loop_ns]]);
  paintPhase(bar.firstChild, phase);
  const share = (tenths) => (tenths ? formatShare(tenths) : "");
  const line = make(isPart ? "tr.part" : "tr", name, make("td.lane", bar), make("td", formatShare(row.share)), make("td", formatTime(row.ns)),
    make("td", share(row.inferred)), make("td", share(row.waiting)));
  addTip(name, () => describePhase(row));
  return line;
}

// ---- lines

function readLine([where, fn, text, phase, span, samples, share, inner, full]) {
  return { where, fn, text, phase: phase || "other", span, samples, share, inner, full };
}

function showLines() {
  const said = DATA.lines;
  if (!showSection("lines", said !== null)) return;
  const groups = said.groups.map((group) => ({ ...group, rows: group.rows.map(readLine) }));
  const [own, others] = groups;
  byId("lines-said").textContent = own.rows.length
    ? `${plural(own.samples, "sample")} of the main thread while the loop ran, by the innermost line of your own code.`
    : "Samples of other threads and processes.";
  const filter = byId("lines-filter");
  const phases = [ALL_PHASES, ...new Set(groups.flatMap((group) => group.rows.map((row) => row.phase)))];
  let chosen = ALL_PHASES;
  let limit = 15;
  const buttons = phases.map((phase) => makeButton(phase, () => {
    chosen = phase;
    render();
  }));
  filter.append(...(phases.length > 2 ? buttons : []));
  const more = byId("lines-more");
  more.addEventListener("click", () => {
    limit += 50;
    render();
  });
  const tables = [["Share of loop", own], ["Share", others]].filter(([, group]) => group.rows.length).map(([title, group]) => {
    const body = make("tbody");
    const head = [title, "Line", "", "Samples", "In"].map((text, column) => make(column === 1 || column === 4 ? "th.left" : "th", text));
    const caption = group === others ? [make("p.caption", "Other threads and processes, at work: shares of their samples")] : [];
    byId("lines-tables").append(...caption, make("div.scroll", make("table.lines", make("thead", make("tr", ...head)), body)));
    return { group, body };
  });

  function render() {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === chosen)));
    let left = 0;
    for (const { group, body } of tables) {
      const rows = group.rows.filter((row) => chosen === ALL_PHASES || row.phase === chosen);
      body.replaceChildren(...rows.slice(0, limit).map(lineRow));
      if (!rows.length) body.append(make("tr", make("td"), make("td.spot.muted", "no line of this phase")));
      left += Math.max(0, rows.length - limit);
    }
    more.parentNode.hidden = !left;
    more.textContent = `Show more of ${plural(left, "line")}`;
  }
  render();
}

function lineRow(row) {
  const place = make("td.spot", make("div.name", make("b", row.where), ` ${row.fn}`));
  if (row.text) place.append(make("code", row.text));
  if (row.inner) place.append(make("div.muted", `→ ${row.inner}`));
  const bar = barOf([["", 0, row.share / 1000]]);
  paintPhase(bar.firstChild, { name: row.phase });
  addTip(place, () => [row.full, [row.fn, row.inner ? `mostly in ${row.inner}` : ""]]);
  return make("tr", make("td", formatShare(row.share)), place, make("td.lane", bar), make("td", formatCount(row.samples)), make("td.site", row.span));
}
