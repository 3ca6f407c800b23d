// The icicle: the sheet as areas. Cells are buttons, so the keyboard and screen readers reach them.

const CELL_HEIGHT = 25;
const NARROWEST_PX = 3; // narrower neighbours become one block

function showIcicle() {
  const box = byId("icicle-cells");
  const crumbs = byId("crumbs");
  const search = byId("icicle-search");
  const said = byId("icicle-said");
  if (!SHEET) return;
  byId("icicle-legend").append(kindLegend());
  let root = SHEET[0];
  let hits = null; // set of rows while searching

  function pathTo(row) {
    const path = [];
    for (let at = row; at; at = SHEET[at.parent]) path.unshift(at);
    return path;
  }

  function zoom(row, focus = false) {
    root = row;
    render();
    if (focus) box.querySelector(`[data-row="${row.index}"]`)?.focus();
  }

  function render() {
    const width = box.clientWidth || 1;
    const cells = [];
    let deepest = 0;
    const place = (element, left, size, depth) => {
      element.style.left = `${left}px`;
      element.style.width = `${Math.max(1, size)}px`;
      element.style.top = `${depth * CELL_HEIGHT}px`;
      element.classList.toggle("narrow", size < 18); // no room for a letter and its dots
      deepest = Math.max(deepest, depth);
      cells.push(element);
    };
    const above = pathTo(root).slice(0, -1);
    above.forEach((row, depth) => place(cellOf(row, true), 0, width, depth));
    const stack = [[root, 0, width, above.length]];
    while (stack.length) {
      const [row, left, size, depth] = stack.pop();
      place(cellOf(row, false), left, size, depth);
      let at = left;
      let small = [];
      const flush = () => {
        if (!small.length) return;
        const wide = small.reduce((sum, child) => sum + child.ns, 0) / row.ns * size;
        if (wide >= 1) place(restOf(small), at - wide, wide, depth + 1);
        small = [];
      };
      for (const child of row.children) {
        const wide = (child.ns / row.ns) * size;
        if (wide < NARROWEST_PX) {
          small.push(child);
        } else {
          flush();
          stack.push([child, at, wide, depth + 1]);
        }
        at += wide;
      }
      flush();
    }
    box.replaceChildren(...cells);
    box.style.height = `${Math.min(620, (deepest + 1) * CELL_HEIGHT)}px`;
    const first = box.querySelector(`[data-row="${root.index}"]`);
    if (first) first.tabIndex = 0;
    crumbs.replaceChildren(...pathTo(root).flatMap((row, i) => {
      const crumb = makeButton(row.name, () => zoom(row, true));
      return i ? [make("span.muted", "›"), crumb] : [crumb];
    }));
  }

  function cellOf(row, isAbove) {
    const cell = make("button.cell", make("span.patch", (row.inferred ? "≈ " : "") + row.name));
    paintCell(cell, row);
    cell.type = "button";
    cell.tabIndex = -1;
    cell.dataset.row = row.index;
    cell.classList.toggle("inferred", row.inferred);
    cell.classList.toggle("above", isAbove);
    cell.classList.toggle("hit", hits !== null && hits.has(row));
    cell.setAttribute("aria-label", `${row.name}, ${formatShare(row.share)} of wall, ${formatTime(row.ns)}`);
    addTip(cell, () => describeRow(row));
    return cell;
  }

  function restOf(rows) {
    const cell = make("span.cell.rest");
    const ns = rows.reduce((sum, row) => sum + row.ns, 0);
    cell.classList.toggle("hit", hits !== null && rows.some((row) => hits.has(row)));
    addTip(cell, () => [plural(rows.length, "small row"), [formatTime(ns), "zoom into the block above to see them"]]);
    return cell;
  }

  // Rows whose name matches, and the time they hold; one below another counts once.
  function find() {
    const text = search.value.trim().toLowerCase();
    box.classList.toggle("searching", text !== "");
    hits = text ? new Set(SHEET.filter((row) => row.name.toLowerCase().includes(text))) : null;
    if (!hits) {
      said.textContent = "";
    } else {
      const outermost = [...hits].filter((row) => !pathTo(row).slice(0, -1).some((other) => hits.has(other)));
      const ns = outermost.reduce((sum, row) => sum + row.ns, 0);
      said.textContent = hits.size
        ? `${plural(hits.size, "row")} match: ${formatShare(tenthsOf(ns, SHEET[0].ns))} of wall, ${formatTime(ns)}`
        : "nothing matches";
    }
    render();
  }

  box.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-row]");
    if (cell) zoom(SHEET[Number(cell.dataset.row)], true);
  });
  box.addEventListener("keydown", (event) => {
    const cell = event.target.closest("[data-row]");
    if (!cell) return;
    const row = SHEET[Number(cell.dataset.row)];
    const to = stepFrom(row, event.key, root);
    if (event.key === "Escape") zoom(SHEET[0], true);
    if (!to) return;
    event.preventDefault();
    const next = box.querySelector(`[data-row="${to.index}"]`);
    if (!next) return;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !hits || !hits.size) return;
    const list = [...hits];
    zoom(list[(list.indexOf(root) + 1) % list.length]);
  });
  onResize(box, render);
}

// Down to the first child, up to the parent, sideways to the neighbours.
function stepFrom(row, key, root) {
  const siblings = row === root || row.parent < 0 ? [row] : SHEET[row.parent].children;
  const at = siblings.indexOf(row);
  return {
    ArrowDown: row.children[0], ArrowUp: SHEET[row.parent], ArrowLeft: siblings[at - 1], ArrowRight: siblings[at + 1],
  }[key];
}

// A block that holds others is neutral, with what it is made of as a strip along its foot.
function paintCell(cell, row) {
  if (!row.children.length) return cell.classList.add(`k${row.kind}`);
  cell.classList.add("holder");
  let at = 0;
  const stops = [];
  KINDS.forEach((kind, i) => {
    const share = ((row.parts[2 * i] + row.parts[2 * i + 1]) / (row.ns || 1)) * 100;
    if (share) stops.push(`var(--${kind}) ${at}% ${at + share}%`);
    at += share;
  });
  cell.style.setProperty("--pattern", `linear-gradient(to right, ${stops.join(", ")})`);
}
