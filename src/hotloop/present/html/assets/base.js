// What every part uses: the data, elements made from text, numbers as people read them, the one tooltip.
// Names from a session reach the page as text nodes only; nothing here or elsewhere parses them.

const DATA = JSON.parse(document.getElementById("data").textContent);
const KINDS = ["work", "waiting", "unattributed", "profiler"];
const byId = (id) => document.getElementById(id);

// make("td.label", "text", child, …): an element with classes, and children that are elements or text.
function make(spec, ...children) {
  const [tag, ...classes] = spec.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

function draw(tag, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}

function makeButton(text, act) {
  const button = make("button", text);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

// A track with pieces on it: [classes, where it begins, how long it is], both from 0 to 1.
function barOf(pieces) {
  return make("span.track", ...pieces.map(([classes, begin, size]) => {
    const piece = make(`i${classes}`);
    piece.style.left = `${begin * 100}%`;
    piece.style.width = `${size * 100}%`;
    return piece;
  }));
}

// Times one after the other on a track, as parts of the whole.
function partsBar(times, classes, whole, begin = 0) {
  const pieces = times.map((ns, i) => {
    const piece = [classes[i], begin / whole, ns / whole];
    begin += ns;
    return piece;
  });
  return barOf(pieces.filter(([, , size]) => size));
}

// A part of a div.stack, as wide as its time, with a label as far as there is room.
function segmentOf(spec, text, ns, describe) {
  const segment = make(spec, make("span.patch", text));
  segment.style.flex = `${ns} 1 0`;
  addTip(segment, describe);
  return segment;
}

// A section that is not always there, and the links to it.
function showSection(id, shown) {
  for (const element of document.querySelectorAll(`#${id}, nav a[href="#${id}"]`)) element.hidden = !shown;
  return shown;
}

// A section below those of the template, with its link in the bar.
function addSection(id, title, about, ...children) {
  const head = make("h2", title);
  head.id = `${id}-title`;
  const section = make("section", head, make("p.muted", about), ...children);
  section.id = id;
  section.setAttribute("aria-labelledby", head.id);
  document.querySelector("main").append(section);
  const link = make("a", title);
  link.href = `#${id}`;
  document.querySelector("nav").append(link);
}

// For a dl.cards: a number people look for, its name above it, a word beside it.
function factCard([title, value, note]) {
  return make("div", make("dt", title), make("dd", value, ...(note ? [" ", make("small", note)] : [])));
}

const nameOf = (number) => DATA.names[number] || "(no name)";

function plural(count, one, many = one + "s") {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

const formatCount = (value) => Math.round(value).toLocaleString("en-US");

// A time with three digits and a unit, as `hotloop report` writes it.
function formatTime(ns) {
  const two = (value) => String(value).padStart(2, "0");
  const seconds = Math.round(ns / 1e9);
  if (ns <= 0) return "0 s";
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)} h`;
  if (ns >= 6e11) return `${Math.floor(seconds / 60)}:${two(seconds % 60)} min`;
  const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([least]) => ns >= least * 0.9995) || [1, "ns"];
  const value = ns / size;
  return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${unit}`;
}

const formatSeconds = (seconds) => formatTime(seconds * 1e9);

function formatBytes(bytes) {
  if (bytes >= 2 ** 30) return `${(bytes / 2 ** 30).toFixed(2)} GB`;
  return bytes >= 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MB` : `${Math.round(bytes / 2 ** 10)} KB`;
}

// Shares come as whole tenths of a percent that add up; a share worked out here is brought to the same form.
const formatShare = (tenths) => `${Math.floor(tenths / 10)}.${tenths % 10} %`;
const tenthsOf = (part, whole) => (whole > 0 ? Math.min(1000, Math.round((part / whole) * 1000)) : 0);

function formatRate(value) {
  return value >= 1000 ? formatCount(value) : value.toPrecision(3);
}

// ---- colours: defined in the style sheet, read here for canvas, read again when the theme changes

const themeListeners = [];
const probe = make("i");
document.body.append(probe);

function colourOf(variable) {
  probe.style.color = `var(--${variable})`;
  return getComputedStyle(probe).color;
}

function startTheme() {
  const media = matchMedia("(prefers-color-scheme: dark)");
  const button = byId("theme");
  let chosen = null; // kept in memory only
  const apply = () => {
    const theme = chosen || (media.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    for (const listener of themeListeners) listener();
  };
  button.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  media.addEventListener("change", apply);
  apply();
}

// ---- the tooltip: a name and lines of text

const tip = byId("tip");

function showTip(x, y, name, lines) {
  tip.replaceChildren(make("b", name), ...lines.filter(Boolean).map((line) => make("span", line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth - 8 ? x - box.width - 14 : x + 14;
  const top = y + 16 + box.height > innerHeight - 8 ? y - box.height - 12 : y + 16;
  tip.style.left = `${Math.max(8, Math.min(left, innerWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function hideTip() {
  tip.hidden = true;
}

// `describe` answers [name, lines]; shown for the pointer and for the keyboard.
function addTip(element, describe) {
  element.addEventListener("pointermove", (event) => showTip(event.clientX, event.clientY, ...describe()));
  element.addEventListener("pointerleave", hideTip);
  element.addEventListener("focus", () => {
    if (!element.matches(":focus-visible")) return;
    const box = element.getBoundingClientRect();
    showTip(box.left, box.bottom - 8, ...describe());
  });
  element.addEventListener("blur", hideTip);
}
addEventListener("scroll", hideTip, { passive: true });
addEventListener("keydown", (event) => event.key === "Escape" && hideTip());

// Draw what depends on the width of an element, now and whenever it changes; in a frame of its own, since drawing may
// change the width of something else.
function onResize(element, callback) {
  let width = element.clientWidth;
  callback();
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    callback();
  })).observe(element);
}

function kindLegend() {
  const items = KINDS.map((kind, i) => make("span", make(`i.sample.k${i}`), kind));
  return make("div.legend", ...items, make("span", make("i.sample.k0.inferred"), "≈ inferred, hatched"));
}
