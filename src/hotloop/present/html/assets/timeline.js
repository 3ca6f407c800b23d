// The timeline: lanes of blocks on a canvas that is as high as its frame; the frame scrolls, the canvas stays.

const ROW_HEIGHT = 17;
const TITLE_HEIGHT = 18;
const AXIS_HEIGHT = DATA.timeline.marks.length ? 38 : 22; // times, and below them the iterations
const NARROWEST_VIEW_NS = 200;

function showTimeline() {
  const source = DATA.timeline;
  const frame = byId("timeline-frame");
  const canvas = byId("timeline-canvas");
  byId("timeline-said").textContent = sayWhatIsDrawn(source);
  if (!source.dur.length) {
    for (const id of ["timeline-frame", "timeline-tools", "timeline-help"]) byId(id).hidden = true;
    return;
  }
  const blocks = readBlocks(source);
  const tops = [];
  let height = AXIS_HEIGHT;
  for (const [, rows] of source.lanes) {
    tops.push(height);
    height += TITLE_HEIGHT + rows * ROW_HEIGHT + 6;
  }
  const shown = Math.min(height, 560);
  byId("timeline-space").style.height = `${height - shown}px`;
  frame.style.height = `${shown + 2}px`;
  canvas.style.height = `${shown}px`;
  canvas.setAttribute("aria-label", `Timeline of ${plural(source.lanes.length, "lane")}. ${sayWhatIsDrawn(source)} The operations table below holds the numbers.`);
  const whole = { from: 0, to: Math.max(1, source.end_ns) };
  let view = { ...whole };
  let chosen = null; // a stretch being selected, in pixels
  let colours = readColours();
  let waiting = false;

  const width = () => canvas.clientWidth || 1;
  const xOf = (ns) => ((ns - view.from) / (view.to - view.from)) * width();
  const timeAt = (x) => view.from + (x / width()) * (view.to - view.from);

  function look(from, to) {
    const size = Math.min(Math.max(to - from, NARROWEST_VIEW_NS), whole.to - whole.from);
    const start = Math.min(Math.max(from, whole.from), whole.to - size);
    view = { from: start, to: start + size };
    for (const button of byId("timeline-windows").children) {
      button.setAttribute("aria-pressed", button.dataset.from === String(from) && button.dataset.to === String(to));
    }
    redraw();
  }

  function zoomAt(x, factor) {
    const at = timeAt(x);
    look(at - (at - view.from) * factor, at + (view.to - at) * factor);
  }

  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      paint();
    });
  }

  function paint() {
    const scale = devicePixelRatio || 1;
    const wide = width();
    if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(shown * scale)) {
      canvas.width = Math.round(wide * scale);
      canvas.height = Math.round(shown * scale);
    }
    const g = canvas.getContext("2d");
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.fillStyle = colours.panel;
    g.fillRect(0, 0, wide, shown);
    g.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    g.textBaseline = "middle";
    const down = frame.scrollTop;
    const marks = marksInView(wide);
    paintWindows(g, wide);
    paintMarks(g, marks);
    g.save();
    g.beginPath();
    g.rect(0, AXIS_HEIGHT, wide, shown);
    g.clip();
    paintTitles(g, wide, down);
    paintBlocks(g, wide, down);
    g.restore();
    numberMarks(g, wide, marks);
    paintAxis(g, wide);
    if (chosen) {
      g.fillStyle = colours.choice;
      g.fillRect(Math.min(...chosen), AXIS_HEIGHT, Math.abs(chosen[1] - chosen[0]), shown);
    }
  }

  // What lies outside the windows was not kept, and is drawn as such.
  function paintWindows(g, wide) {
    g.fillStyle = colours.soft;
    let at = 0;
    for (const [, , from, to] of source.windows) {
      const edge = xOf(from);
      if (edge > at) g.fillRect(at, AXIS_HEIGHT, Math.min(edge, wide) - at, shown);
      at = Math.max(at, xOf(to));
    }
    if (at < wide) g.fillRect(at, AXIS_HEIGHT, wide - at, shown);
  }

  // Iterations begin at these; where they are dense, every second, fourth, … is drawn.
  function marksInView(wide) {
    const inView = source.marks.filter(([, at]) => at >= view.from && at <= view.to);
    const every = 2 ** Math.ceil(Math.log2(Math.max(1, inView.length / (wide / 9))));
    return inView.filter(([iteration]) => iteration % every === 0).map(([iteration, at]) => [iteration, Math.round(xOf(at)) + 0.5]);
  }

  function paintMarks(g, marks) {
    g.strokeStyle = colours.line;
    g.beginPath();
    for (const [, x] of marks) {
      g.moveTo(x, AXIS_HEIGHT - 14);
      g.lineTo(x, shown);
    }
    g.stroke();
  }

  // The iteration the view begins in is numbered too, although its line is not in view.
  function numberMarks(g, wide, marks) {
    g.fillStyle = colours.muted;
    let free = -1;
    const current = iterationAt(source.marks, view.from);
    if (current !== null && (!marks.length || marks[0][1] > 60)) g.fillText(`#${formatCount(current)}`, 4, AXIS_HEIGHT - 8);
    for (const [iteration, x] of marks) {
      const text = `#${formatCount(iteration)}`;
      if (x < free || x > wide - 8 * text.length) continue;
      g.fillText(text, x + 3, AXIS_HEIGHT - 8);
      free = x + 14 + text.length * 7;
    }
  }

  function paintTitles(g, wide, down) {
    source.lanes.forEach(([[owner, track]], lane) => {
      const y = tops[lane] - down;
      if (y < -TITLE_HEIGHT || y > shown) return;
      g.strokeStyle = colours.line;
      g.strokeRect(-1, y + 0.5, wide + 2, 0);
      g.fillStyle = colours.muted;
      g.fillText(fitText(owner ? `${owner} · ${track}` : track, wide - 12), 6, y + TITLE_HEIGHT / 2 + 1);
    });
  }

  function paintBlocks(g, wide, down) {
    const reached = new Float64Array(source.lanes.length * 32).fill(-1); // per row: the last pixel painted
    for (const block of blocks) {
      const end = block.start + block.dur;
      if (end < view.from || block.start > view.to) continue;
      const y = tops[block.lane] + TITLE_HEIGHT + block.row * ROW_HEIGHT - down;
      if (y < AXIS_HEIGHT - ROW_HEIGHT || y > shown) continue;
      const left = Math.max(-2, xOf(block.start));
      const right = Math.min(wide + 2, Math.max(xOf(end), left + 0.7));
      const key = block.lane * 32 + block.row;
      if (right <= reached[key] + 0.3) continue;
      reached[key] = right;
      g.fillStyle = block.label.kind === 1 ? colours.waitFill : colours.fill[block.label.colour];
      const size = right - left;
      g.fillRect(left, y, size > 3 ? size - 0.6 : size, ROW_HEIGHT - 2);
      if (block.spans === 0) {
        g.fillStyle = colours.mark;
        g.fillRect(Math.max(left, right - 3), y, 3, ROW_HEIGHT - 2);
      }
      if (size < 26) continue;
      g.fillStyle = colours.text[block.label.colour];
      const from = Math.max(0, left) + 4;
      const text = block.spans > 1 ? `${block.spans} × ${block.label.name}` : block.label.name;
      g.fillText(fitText(text, right - from - 3), from, y + ROW_HEIGHT / 2 - 0.5);
    }
  }

  function paintAxis(g, wide) {
    g.fillStyle = colours.muted;
    g.strokeStyle = colours.line;
    g.strokeRect(-1, AXIS_HEIGHT - 0.5, wide + 2, 0);
    const step = niceStep(Math.max(1, (view.to - view.from) / Math.max(2, wide / 130)));
    for (let at = Math.ceil(view.from / step) * step; at < view.to; at += step) {
      const x = xOf(at);
      g.strokeRect(Math.round(x) + 0.5, 0, 0, 18);
      if (x < wide - 70) g.fillText(formatTick(at, step), x + 4, 11);
    }
  }

  function blockAt(x, y) {
    if (y < AXIS_HEIGHT) return null;
    const down = y + frame.scrollTop;
    const at = timeAt(x);
    const slack = ((view.to - view.from) / width()) * 1.5;
    let best = null;
    for (const block of blocks) {
      const top = tops[block.lane] + TITLE_HEIGHT + block.row * ROW_HEIGHT;
      if (down < top || down >= top + ROW_HEIGHT) continue;
      if (at < block.start - slack || at > block.start + block.dur + slack) continue;
      if (!best || Math.abs(block.start + block.dur / 2 - at) < Math.abs(best.start + best.dur / 2 - at)) best = block;
    }
    return best;
  }

  function describe(block) {
    const iteration = iterationAt(source.marks, block.start);
    return [block.label.name, [
      block.spans > 1 ? `${plural(block.spans, "short span")} side by side over ${formatTime(block.dur)}; this is the longest` : formatTime(block.dur),
      block.spans === 0 ? "still open when the recording ended" : "",
      `at ${formatTime(block.start)}${iteration === null ? "" : `, iteration ${formatCount(iteration)}`}`,
      source.lanes[block.lane][0].filter(Boolean).join(" · ") + (block.label.kind ? ` · ${KINDS[block.label.kind]}` : ""),
    ]];
  }

  // ---- pointer and keys
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    drag = { x: event.offsetX, y: event.offsetY, view: { ...view }, top: frame.scrollTop, select: event.shiftKey };
    canvas.setPointerCapture(event.pointerId);
    frame.classList.toggle("moving", !drag.select);
    hideTip();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) {
      const block = blockAt(event.offsetX, event.offsetY);
      if (block) showTip(event.clientX, event.clientY, ...describe(block));
      else hideTip();
    } else if (drag.select) {
      chosen = [drag.x, event.offsetX];
      redraw();
    } else {
      const shift = ((drag.x - event.offsetX) / width()) * (drag.view.to - drag.view.from);
      if (event.pointerType !== "touch") frame.scrollTop = drag.top + drag.y - event.offsetY;
      if (shift) look(drag.view.from + shift, drag.view.to + shift);
    }
  });
  const drop = () => {
    if (chosen && Math.abs(chosen[1] - chosen[0]) > 4) look(timeAt(Math.min(...chosen)), timeAt(Math.max(...chosen)));
    drag = chosen = null;
    frame.classList.remove("moving");
    redraw();
  };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", (event) => zoomAt(event.offsetX, event.shiftKey ? 2 : 0.5));
  canvas.addEventListener("wheel", (event) => {
    // The page keeps its wheel until the timeline was clicked: a long page must stay scrollable.
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const shift = (event.deltaX / width()) * (view.to - view.from);
      look(view.from + shift, view.to + shift);
    } else {
      zoomAt(event.offsetX, Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.004))));
    }
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const size = view.to - view.from;
    const keys = {
      ArrowLeft: () => look(view.from - size / 5, view.to - size / 5),
      ArrowRight: () => look(view.from + size / 5, view.to + size / 5),
      ArrowDown: () => (frame.scrollTop += 60),
      ArrowUp: () => (frame.scrollTop -= 60),
      "+": () => zoomAt(width() / 2, 0.5),
      "=": () => zoomAt(width() / 2, 0.5),
      "-": () => zoomAt(width() / 2, 2),
      0: () => look(whole.from, whole.to),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  frame.addEventListener("scroll", redraw);
  byId("timeline-in").addEventListener("click", () => zoomAt(width() / 2, 0.5));
  byId("timeline-out").addEventListener("click", () => zoomAt(width() / 2, 2));
  byId("timeline-all").addEventListener("click", () => look(whole.from, whole.to));
  addWindowButtons(source, look);
  themeListeners.push(() => {
    colours = readColours();
    redraw();
  });
  const last = source.windows[source.windows.length - 1];
  if (source.windows.length > 1) look(last[2], last[3]);
  onResize(canvas, paint);
}
