// The page's drawing: one store of what the server sent, and the parts that show it.
// Texts from outside (labels, file names) reach the page as text nodes, never as HTML.
window.sea = (() => {
  "use strict";
  const page = { state: null, turn: 0, p: 8, layer: 0, strength: 0.8, marked: new Set(), keep: false, said: null };
  const parts = [];
  let server = null, asking = false, wanted = null, trying = false, changed = false, brush = null, wishes = 0;

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  function draw(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  function decode(text) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
    return bytes;
  }

  // A part's value, which comes as one text.
  function unpack(props) {
    let text = null, value = {};
    return { get value() {
      if (props.value !== text) { text = props.value; value = text ? JSON.parse(text) : {}; }
      return value;
    } };
  }

  const isShare = () => page.state?.unit === "probability";
  function write(score) {
    if (score === null || score === undefined) return "…";
    if (!isShare()) return Number(score.toPrecision(4)).toString();
    return score > 0.995 && score < 1 ? ">.99" : score.toFixed(2).replace(/^0/, "");
  }
  const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
  const noun = (count = 2) => page.state?.map?.noun[count === 1 ? 0 : 1] ?? "features";

  // Pictures are decoded once an address.
  const pictures = new Map();
  function load(url) {
    if (!pictures.has(url)) {
      if (pictures.size > 24) pictures.clear();
      const picture = new Image();
      pictures.set(url, new Promise((resolve) => { picture.onload = () => resolve(picture); picture.src = url; }));
    }
    return pictures.get(url);
  }

  // A layer of heat as a canvas: the hotter, the denser, as in the figures of sea_nn.show.
  function paint(map, index) {
    const layer = map.layers[index] ?? map.layers[0];
    if (layer.canvas) return layer.canvas;
    const heat = decode(layer.data), colours = decode(map.colours);
    layer.values = heat;
    layer.canvas = Object.assign(document.createElement("canvas"), { width: layer.width, height: layer.height });
    const context = layer.canvas.getContext("2d"), image = context.createImageData(layer.width, layer.height);
    const alpha = Array.from({ length: 256 }, (_, h) => 255 * (1 - 0.35 ** (0.1 + 2.5 * (h / 255) ** 1.5)));
    const shade = new Uint8ClampedArray(alpha.flatMap((a, h) => [...colours.subarray(3 * h, 3 * h + 3), a]));
    const shades = new Uint32Array(shade.buffer), pixels = new Uint32Array(image.data.buffer);
    heat.forEach((h, i) => { pixels[i] = shades[h]; });
    context.putImageData(image, 0, 0);
    return layer.canvas;
  }

  const best = (p = page.p) => new Set(page.state.map.order.slice(0, p));
  const removedCells = () => {
    const all = [...Array(page.state.map?.n ?? 0).keys()];
    return new Set(all.filter((cell) => page.marked.has(cell) !== page.keep));
  };

  // Where a cell begins, as a share of the side: cells hold whole positions (number_cells).
  const edge = (k, cells, positions) => Math.ceil((k * positions) / cells) / positions;

  // The rectangle of a cell in a canvas of this size.
  function box(map, cell, width, height) {
    const { grid: [rows, columns], shape } = map;
    const r = Math.floor(cell / columns), c = cell % columns;
    const x = width * edge(c, columns, shape[1]), y = height * edge(r, rows, shape[0]);
    return [x, y, width * edge(c + 1, columns, shape[1]) - x, height * edge(r + 1, rows, shape[0]) - y];
  }

  // The sides of all cells, for a grid of buttons over them.
  function tracks(axis) {
    const { grid, shape } = page.state.map, n = grid[axis];
    return Array.from({ length: n }, (_, k) => `${edge(k + 1, n, shape[axis]) - edge(k, n, shape[axis])}fr`).join(" ");
  }

  function clip(context, map, cells, width, height) {
    context.beginPath();
    for (const cell of cells) context.rect(...box(map, cell, width, height));
    context.clip();
  }

  function size(state) {
    if (state.kind === "series") return [640, Math.min(480, Math.max(160, 90 * state.values.length))];
    return null;
  }

  function drawLines(context, state, values, width, height) {
    const band = height / values.length, { color, backgroundColor } = getComputedStyle(document.body);
    values.forEach((line, c) => {
      const own = state.values[c], low = Math.min(...own), high = Math.max(...own), span = high - low || 1;
      context.beginPath();
      line.forEach((v, t) => {
        const x = ((t + 0.5) * width) / line.length;
        const y = (c + 0.9 - (0.8 * (v - low)) / span) * band;
        t ? context.lineTo(x, y) : context.moveTo(x, y);
      });
      // A halo, for a line must be seen on the page and on the hottest colour.
      context.strokeStyle = backgroundColor; context.lineWidth = 5; context.stroke();
      context.strokeStyle = color; context.lineWidth = 2; context.stroke();
    });
  }

  // The input with only some cells left; the others as the model gets them.
  async function drawInput(canvas, state, left) {
    const fixed = size(state);
    if (fixed) {
      [canvas.width, canvas.height] = fixed;
      const context = canvas.getContext("2d");
      const [rows, columns] = state.map?.grid ?? [1, 1];
      const mixed = state.values.map((line, c) => line.map((v, t) => {
        const cell = Math.floor((c * rows) / state.values.length) * columns + Math.floor((t * columns) / line.length);
        return left === null || left.has(cell) ? v : state.absent[c][t];
      }));
      drawLines(context, state, mixed, ...fixed);
      return context;
    }
    const [whole, hidden] = await Promise.all([load(state.picture), load(state.hidden)]);
    const scale = Math.max(1, Math.round(448 / Math.max(whole.width, whole.height)));
    canvas.width = whole.width * scale; canvas.height = whole.height * scale;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = whole.width > 64;
    context.drawImage(left === null ? whole : hidden, 0, 0, canvas.width, canvas.height);
    if (left !== null && left.size) {
      context.save();
      clip(context, state.map, left, canvas.width, canvas.height);
      context.drawImage(whole, 0, 0, canvas.width, canvas.height);
      context.restore();
    }
    return context;
  }

  // The map over a grey copy of the input, the best p cells in a golden line.
  async function drawMap(canvas, state, layer, lit, strength = page.strength) {
    const still = make("canvas");
    await drawInput(still, state, null);
    canvas.width = still.width; canvas.height = still.height;
    const context = canvas.getContext("2d"), { width, height } = canvas;
    const heated = state.map && strength > 0;
    if (state.kind === "image") {
      context.filter = heated ? "grayscale(1)" : "none";
      context.drawImage(still, 0, 0);
      context.filter = "none";
    }
    if (heated) {
      context.globalAlpha = strength;
      context.imageSmoothingEnabled = state.map.layers[0].width > 64;
      context.drawImage(paint(state.map, layer), 0, 0, width, height);
      context.globalAlpha = 1;
    }
    if (state.kind === "series") context.drawImage(still, 0, 0);
    if (state.map && lit) outline(context, state.map, lit, width, height);
    return context;
  }

  function outline(context, map, cells, width, height) {
    const [, columns] = map.grid, unit = Math.max(2, width / 180);
    const edges = new Path2D();
    for (const cell of cells) {
      const [x, y, w, h] = box(map, cell, width, height), c = cell % columns;
      const side = (other, ok, ...line) => {
        if (ok && cells.has(other)) return;
        edges.moveTo(line[0], line[1]); edges.lineTo(line[2], line[3]);
      };
      side(cell - columns, true, x, y, x + w, y);
      side(cell + columns, true, x, y + h, x + w, y + h);
      side(cell - 1, c > 0, x, y, x, y + h);
      side(cell + 1, c < columns - 1, x + w, y, x + w, y + h);
    }
    for (const [colour, thick] of [["#1c1c22", 2.2 * unit], ["#ffb000", 1.2 * unit]]) {
      context.strokeStyle = colour; context.lineWidth = thick; context.lineCap = "round";
      context.stroke(edges);
    }
  }

  function measured(p = page.p) {
    return page.state?.map?.measured.find((point) => point[0] === p) ?? null;
  }

  // Ask the model about the best p, once; only the newest wish waits.
  async function weigh() {
    const { state, p } = page;
    if (!state?.map || measured(p) || !server) return;
    wanted = p;
    if (asking) return;
    asking = true;
    while (wanted !== null) {
      const next = wanted, map = page.state.map;
      wanted = null;
      if (measured(next)) continue;
      const reply = await server.weigh({ key: page.state.key, p: next }).catch(() => null);
      if (reply && !reply.error && map === page.state.map) {
        map.measured.push(reply.point);
        page.state.evaluations = reply.evaluations;
        refresh();
      }
    }
    asking = false;
  }

  // Ask the model without what is marked; what changes meanwhile is asked about afterwards.
  async function tryOut() {
    changed = true;
    if (trying) return;
    trying = true;
    while (changed) {
      changed = false;
      const cells = [...page.marked];
      const reply = cells.length ? await server.remove({ key: page.state.key, cells, keep: page.keep }).catch(() => null) : null;
      if (!changed) { page.said = cells.length ? reply ?? { error: "The server did not answer." } : null; refresh(); }
    }
    trying = false;
  }

  function setP(p) {
    page.p = Math.max(0, Math.min(p, page.state?.map?.n ?? p));
    refresh();
    weigh();
  }

  function mark(cell, on = !page.marked.has(cell)) {
    on ? page.marked.add(cell) : page.marked.delete(cell);
    page.said = null;
    refresh();
    tryOut();
  }

  // Keys, fingers and screen readers click; a mouse or a pen also brushes over several.
  function brushable(cell) {
    const paints = (event) => event.pointerType !== "touch" && event.buttons === 1;
    return {
      onclick: (event) => { if (event.detail === 0 || brush === null) mark(cell); brush = null; },
      onpointerdown: (event) => { if (paints(event)) { brush = !page.marked.has(cell); mark(cell, brush); } },
      onpointerenter: (event) => { if (paints(event) && brush !== null) mark(cell, brush); },
    };
  }
  document.addEventListener("pointerdown", () => { brush = null; }, true);

  function clear() { page.marked.clear(); page.said = null; refresh(); }

  function describe(cell) {
    const map = page.state.map, rank = map.order.indexOf(cell), gain = map.gains[rank];
    const place = map.names?.[cell]
      ?? (map.grid ? `row ${Math.floor(cell / map.grid[1]) + 1}, column ${(cell % map.grid[1]) + 1}` : `${noun(1)} ${cell + 1}`);
    const unit = map.unit ? ` ${map.unit}` : "";
    const against = map.against?.[cell] ? `, speaks against it by ${map.against[cell].toPrecision(3)}` : "";
    const does = gain < 0 ? "takes away" : "adds";
    return `${place.trim()}: ${rank + 1}. of ${map.n}, ${does} ${Number(Math.abs(gain).toPrecision(3))}${unit}${against}`;
  }

  // A bar for each class; `pick` makes them buttons.
  function bars(top, pick = null, chosen = null, versus = null) {
    return make("ol", { class: "sea-bars" }, ...top.map(([target, label, score]) => {
      const width = isShare() ? `${100 * score}%` : "0";
      const inside = [make("span", { class: "sea-bar", style: `width:${width}` }), make("span", { class: "sea-name" }, label),
        make("span", { class: "sea-score" }, write(score))];
      const state = target === chosen ? "why" : target === versus ? "not" : "";
      const row = pick
        ? make("button", { type: "button", class: "sea-row", "data-state": state, "aria-pressed": String(target === chosen), onclick: () => pick(target) }, ...inside)
        : make("div", { class: "sea-row" }, ...inside);
      return make("li", {}, row);
    }));
  }

  function refresh() { for (const part of parts) part(); }

  // Whether an answer is to an older request than another that was seen.
  function isOld(value) {
    page.turn = Math.max(page.turn, value?.turn ?? 0);
    return value?.turn < page.turn;
  }

  // Buttons that are made anew must not lose the reader's place.
  function keepFocus(list, change) {
    const name = (one) => one.getAttribute("aria-label") ?? one.textContent;
    const held = list.contains(document.activeElement) ? name(document.activeElement) : null;
    change();
    if (held !== null) [...list.querySelectorAll("button")].find((button) => name(button) === held)?.focus();
  }

  function show(state) {
    if (isOld(state)) return;
    const fresh = state?.picture !== page.state?.picture || state?.input !== page.state?.input || state?.model !== page.state?.model;
    if (fresh) { page.marked.clear(); page.said = null; page.layer = 0; }
    page.state = state;
    if (state?.map && page.n !== state.map.n) { page.n = state.map.n; page.p = Math.max(1, Math.round(page.n / 8)); }
    refresh();
    weigh();
  }

  // A file from the server, offered by the browser's own dialogue.
  function save(file) {
    if (!file?.data) return;
    const url = URL.createObjectURL(new Blob([decode(file.data)], { type: file.type }));
    make("a", { href: url, download: file.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  return {
    page, make, draw, decode, unpack, write, plural, noun, load, paint, best, removedCells, drawInput, drawMap, measured, tracks, describe, bars,
    setP, mark, brushable, isOld, keepFocus, clear, tryOut, refresh, show, save, isShare,
    add(part) { parts.push(part); part(); },
    connect(given) {
      server = given;
      // Light or dark is a class of the body, and canvases are drawn in its colours.
      new MutationObserver(refresh).observe(document.body, { attributeFilter: ["class"] });
    },
    call: (name, body) => server?.[name]({ ...body, key: page.state?.key }).catch(() => null),
    // Ask for something else: what runs is stopped first, and a wish that came meanwhile counts instead.
    async go(trigger, name, data) {
      const mine = wishes += 1;
      await this.stop();
      if (mine === wishes) trigger(name, data);
    },
    stop: () => (page.running ? server.stop({ key: page.state?.key }).catch(() => null) : Promise.resolve()),
  };
})();
