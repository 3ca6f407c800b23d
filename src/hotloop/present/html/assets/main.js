// The header, then every part in the order a person reads.

function showSummary() {
  const s = DATA.session;
  const q = DATA.quality;
  document.title = `${s.name} · HotLoop`;
  byId("name").textContent = s.name;
  const when = s.start_ms === null ? "" : formatDate(new Date(s.start_ms));
  byId("about").textContent = when;
  byId("machine").hidden = !s.command && !s.host.length;
  byId("machine-list").append(...[s.command, ...s.host].filter(Boolean).map((line) => make("li", line)));
  const cards = [["Wall time", formatTime(s.wall_ns), "main track"], ["Training loop", formatTime(s.loop_ns), ""]];
  if (s.sps !== null) {
    const latest = s.sps_latest === null ? "" : `; latest iterations ${formatRate(s.sps_latest)}`;
    cards.push(["Steps per second", formatRate(s.sps), `over the whole loop${latest}`]);
  }
  if (s.iterations) cards.push(["Iterations", formatCount(s.iterations), ""]);
  cards.push(["Coverage", `${(s.coverage * 100).toFixed(1)} %`, s.loop_known ? "of the loop has an owner" : "of the time has an owner"]);
  cards.push(["Processes", formatCount(s.processes), plural(s.tracks, "track")]);
  for (const [name, value] of s.counters) cards.push([name.replaceAll("_", " "), formatCount(value), "counted"]);
  if (s.replay_ratio !== null) cards.push(["Replay ratio", s.replay_ratio.toPrecision(3), "samples per env step"]);
  byId("cards").append(...cards.map(factCard));
  const cost = q.own_cost_ns === null || q.own_cost_error_ns === null ? "unknown" : `${q.own_cost_ns.toFixed(0)} ± ${q.own_cost_error_ns.toFixed(1)} ns a span`;
  const parts = [
    ["Quality: "], [q.losses, q.lost], [` · own cost ${cost}, ${(q.profiler_share * 100).toFixed(2)} % of all tracks’ time, subtracted`],
    [` · ${formatCount(q.recorded)} spans and waits recorded`], [q.open ? ` · ${formatCount(q.open)} open at the end` : ""],
    [q.died ? ` · ${plural(q.died, "process", "processes")} died` : " · no process died", q.died > 0], [` · memory: ${q.memory_method}`],
  ];
  byId("quality").append(...parts.map(([text, bad]) => make(bad ? "span.bad" : "span", text)));
  byId("notes").hidden = !DATA.notes.length;
  byId("notes").append(...DATA.notes.map((note) => make("li", note)));
}

function formatDate(date) {
  const two = (value) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

startTheme();
for (const show of [showSummary, showFindings, showPhases, showLimits, showLines, showTotals, showOwners, showTree, showIcicle, showTimeline, showSeries, showDevice, showOperators, ...TABLES]) show();
performance.mark("hotloop-ready");
