// The viewer of explanations. `root` is the document or a shadow root that holds viewer.html; `source` has the
// inputs and opens one; `ask` puts questions to the model where there is one (in the app alone).

const MOST_BARS = 20;

// Turn what Python packed of one input into arrays; the group's own are unpacked once.
async function unpackInput(entry, group, data) {
  if (group.features && !group.featureOf) group.featureOf = await unpack(group.features, Uint32Array);
  const { n } = group, size = group.map[0] * (group.map[1] ?? 1), order = await unpack(data.order, Uint32Array);
  const featureOf = data.features ? await unpack(data.features, Uint32Array) : group.featureOf;
  const rank = new Uint32Array(n);
  order.forEach((feature, k) => { rank[feature] = k; });
  const gains = await unpack(data.gains, Float32Array), intervals = data.intervals && await unpack(data.intervals, Float32Array);
  const all = data.maps && await unpack(data.maps, Uint8Array);
  const planes = all && group.layers.map((_, k) => all.subarray(k * size, (k + 1) * size));
  return { ...data, entry, group, order, rank, gains, intervals, featureOf, planes, layers: group.layers.map(([name]) => name) };
}

function view(root, source, ask = null) {
  const $ = (id) => root.getElementById(id);
  const fill = (id, ...parts) => $(id).replaceChildren(...parts);
  const state = { input: null, map: 0, opacity: 0.65, p: 0, keep: false };
  const marked = new Set();   // features that the reader left out, or keeps
  let { inputs } = source, links = [], current = null, wanted = 0, cursor = [0, 0];

  async function show(number) {
    const request = ++wanted, data = await source.open(number).catch((error) => error), failed = data instanceof Error;
    if (request !== wanted) return;   // a slow input never replaces a newer one
    $("notice").hidden = !failed;
    $("notice").textContent = failed ? `Input ${number} could not be read; any browser of 2023 or later can: ${data.message}` : "";
    if (failed) return;
    marked.clear();
    current = data;
    state.input = number;
    for (const part of [showStage, showMaps, showScale, showLines, showCharts, showCards, markPlace]) part();
    setP(state.p);
    tryOut();
    $("viewer").dataset.ready = String(number);
  }

  // ---- the stage -------------------------------------------------------------------------

  function showStage() {
    const { group, entry, image, planes } = current, [h, w] = group.map, lines = group.view === "lines";
    $("name").textContent = entry.name;
    $("facts").textContent = [group.unit === "value" ? "" : `class ${entry.target}`, `${group.unit} ${entry.written || "unknown"}`,
      `${count(group.n)} ${group.noun[1]}`, `${group.methods.length} member${group.methods.length === 1 ? "" : "s"}`,
      current.slices ? `${current.slices.length} of ${group.shape[0]} slices, the strongest of each part` : ""].filter(Boolean).join(" · ");
    $("noun").textContent = group.noun[1];
    root.querySelector(".stage").classList.toggle("wide", lines);
    for (const id of ["picture", "caption", "opacity-control"]) $(id).hidden = !planes;
    $("save-map").hidden = !planes || lines;
    $("bars").hidden = Boolean(planes);
    $("picture").style.aspectRatio = lines ? "auto" : `${w} / ${h}`;
    $("picture").style.height = lines ? `${Math.max(110, 96 * h)}px` : "";
    $("image").hidden = !image;
    $("image").alt = `Input: ${entry.name}`;
    $("image").classList.toggle("small", Math.max(h, w) <= 64);
    if (image) $("image").src = image;
    $("readout").textContent = `Point at the map to read values${ask ? ", or walk over it with the arrow keys" : ""}.`;
    if (ask) $("heat").tabIndex = 0;
    $("p").max = String(group.stops.length);
    $("p-exact").max = String(group.n);
    $("trial").hidden = !ask;
    cursor = [w >> 1, h >> 1];
  }

  function showMaps() {
    const { layers, planes, group } = current, pictures = planes && group.view !== "lines";
    $("maps").classList.toggle("plain", !pictures);
    if (state.map >= layers.length) state.map = 0;
    fill("maps", ...group.layers.map(([name, about], k) => {
      const choice = Object.assign(make("input"), { type: "radio", name: "map", value: String(k), checked: k === state.map });
      return Object.assign(make("label", [choice, pictures && makePanel(planes[k], group.map), spoken(name)]), { title: about });
    }));
  }

  const isSpread = () => state.map === current.layers.length - 1;
  // What one times the mean is in the unit of gains, where they have one.
  const sayMean = ({ group, sides }) => group.gain_unit && `${amount(sides[0] / group.n)} ${group.gain_unit} a ${group.noun[0]}`;

  function showScale() {
    const marks = isSpread() ? [[0, "0"], [0.5, "0.25"], [1, "0.5"]]
      : [0, 0.5, 1, 2, 4, limit].map((v) => [Math.sqrt(v / limit), `${v}${v ? "×" : ""}${v === limit ? " or more" : ""}`]);
    fill("ticks", ...marks.map(([place, text]) => {
      const mark = make("span", text);
      mark.style.left = `${100 * place}%`;
      return mark;
    }));
    $("unit").textContent = isSpread() ? "spread of the members' percentile ranks: how far they disagree"
      : "attribution in multiples of the map's own mean; the same colour is the same share in every map" +
        (sayMean(current) && state.map === 0 ? `; here 1× is ${sayMean(current)}` : "");
    const [name, about] = current.group.layers[state.map];
    $("about-map").textContent = `${name[0].toUpperCase()}${spoken(name).slice(1)}: ${about}.`;
    $("about-map").hidden = !about;
  }

  // Whether a feature is among the first p, and not left out by the reader.
  const isLit = (feature) => (!state.p || current.rank[feature] < state.p) && !marked.has(feature);

  function showHeat() {
    const { group, entry, layers, featureOf } = current;
    $("opacity-value").textContent = `${Math.round(100 * state.opacity)} %`;
    if (!current.planes) { showBars(); return; }
    paint($("heat"), current.planes[state.map], group.map, state.opacity, state.p || marked.size ? (k) => isLit(featureOf[k]) : null);
    $("image").style.filter = `grayscale(${Math.min(1, 1.4 * state.opacity)})`;
    $("heat").setAttribute("aria-label", `Map of ${spoken(layers[state.map])} for ${entry.name}` +
      (state.p ? `, the first ${count(state.p)} of ${count(group.n)} ${group.noun[1]} lit` : ""));
  }

  function showBars() {
    const { bars, group, rank, featureOf, total, intervals, values } = current;
    const against = current.against?.some((v) => v > 0) ? current.against : null;
    const spread = isSpread(), own = state.map === 0, signed = own && against, inUnit = own && group.gain_unit;
    const both = bars[0].map((share, k) => share + (against?.[k] ?? 0));
    // Both of a feature's bars, for the class and against it, fit beside each other; shares have one scale in all maps.
    const top = spread ? 0.5 : Math.max(...both, ...(inUnit ? [] : bars.slice(0, -1).flat())) || 1;
    const strength = (k) => Math.max(bars[0][k], against[k]);   // SEA's order ends with what is against
    const order = bars[0].map((_, k) => k).sort((a, b) => (against ? strength(b) - strength(a) : rank[featureOf[a]] - rank[featureOf[b]]));
    const say = (share) => (inUnit ? amount(share * total) : spread ? share.toFixed(2) : percent(share < 0.0005 ? 0 : share));
    const rows = (current.all ? order : order.slice(0, MOST_BARS)).map((k) => {
      const feature = featureOf[k], place = rank[feature], contra = signed ? against[k] : 0;
      const value = values && group.plain && make("small", `= ${Number(values[k].toPrecision(4))}`);
      const label = make(ask ? "button" : "span", [nameFeature(current, feature), value], "label");
      if (ask) Object.assign(label, { type: "button", ariaPressed: String(marked.has(feature)), onclick: () => mark(feature) });
      const track = makeMeter(bars[state.map][k] / top, "fill");
      // What is against is drawn from the right end, striped, with its sign.
      if (contra > 0) track.append(...makeMeter(contra / top, "fill contra").childNodes);
      // The interval of its gain, as far as it is for the class.
      const [low, high] = [0, 1].map((end) => (inUnit && intervals && group.plain ? Math.max(0, intervals[2 * place + end] / total / top) : 0));
      if (high) track.append(Object.assign(make("span", null, "range"), { style: `left: ${100 * low}%; width: ${100 * (high - low)}%` }));
      const number = make("span", [say(bars[state.map][k]), contra > 0 && make("small", `−${say(contra)}`)], "amount");
      const row = make("div", [label, track, number], "bar");
      if (state.p) row.classList.add(place < state.p ? "lit" : "unlit");
      row.classList.toggle("gone", marked.has(feature));
      row.classList.toggle("unsure", Boolean(own && intervals && intervals[2 * place] <= 0 && intervals[2 * place + 1] >= 0));
      return row;
    });
    if (!current.all && order.length > MOST_BARS) {
      const more = make("button", `Show all ${count(order.length)} ${group.noun[1]}`);
      rows.push(Object.assign(more, { type: "button", onclick: () => { current.all = true; showBars(); } }));
    }
    showWords();
    const [name, about] = group.layers[state.map], unit = spread ? "spread of the members' percentile ranks" : inUnit ? `in ${group.gain_unit}` : "share of the map's total";
    const text = [signed && "Striped, from the right: evidence against the class", own && intervals && "Lines: what a gain lies between; faint: 0 is among it",
      `${spoken(name)}: ${unit}, ${group.noun[1]} ${signed ? "the strongest first" : "in SEA's order"}`, about];
    const focused = [...$("bars").querySelectorAll("button")].indexOf(root.activeElement);
    fill("bars", ...text.filter(Boolean).map((line) => make("p", line, "faint")), ...rows);
    $("bars").querySelectorAll("button")[focused]?.focus();
  }

  // A text with its words marked as the chosen map weighs them; of those not lit, only the text.
  function showWords() {
    const { words, bars, against, featureOf } = current;
    $("words").hidden = !words;
    if (!words) return;
    const net = bars[state.map].map((share, k) => share - (state.map === 0 && against ? against[k] : 0));
    const mean = net.reduce((sum, v) => sum + Math.abs(v), 0) / words.length || 1;
    fill("words", make("p", words.flatMap((word, k) => {
      const part = isSpread() ? net[k] / 0.5 : Math.abs(net[k]) / mean / limit;
      const level = Math.round(8 * Math.sqrt(Math.min(1, part))), bare = word.trim();
      if (!bare || !level) return [word];
      if (!isLit(featureOf[k])) return [make("span", word, "faded")];
      const [before, after] = word.split(bare);
      return [before, make("mark", bare, `${net[k] < 0 ? "against" : "for"}-${level}`), after];
    }), "words"));
  }

  // The lines of series over their map, and the names of channels or slices.
  function showLines() {
    const { group, values, slices } = current, lines = group.view === "lines";
    for (const node of root.querySelectorAll(".channel")) node.remove();
    const write = (text, top, left = 0) => {
      const name = make("span", text, "channel");
      Object.assign(name.style, { top: `calc(${100 * top}% + .4rem)`, left: `calc(${100 * left}% + .4rem)` });
      $("picture").append(name);
    };
    $("lines").toggleAttribute("hidden", !lines || !values);
    fill("lines");
    if (slices) slices.forEach((slice, k) => write(`slice ${slice}`, Math.floor(k / group.tiles[1]) / group.tiles[0], (k % group.tiles[1]) / group.tiles[1]));
    if (!lines) return;
    const [channels, steps] = group.shape;
    $("lines").setAttribute("viewBox", `0 0 ${steps} ${channels}`);
    for (let c = 0; c < channels; c++) {
      write(group.names ? group.names[c] : `channel ${c}`, c / channels);
      if (!values) continue;
      const line = values.slice(c * steps, (c + 1) * steps), known = line.filter((v) => v !== null);
      const low = Math.min(...known), span = Math.max(...known) - low || 1;
      const points = line.map((v, t) => (v === null ? null : `${t + 0.5} ${(c + 0.9 - 0.8 * (v - low) / span).toFixed(4)}`));
      const d = points.map((point, t) => point && `${points[t - 1] ? "L" : "M"}${point}`).filter(Boolean).join("");
      $("lines").append(draw("path", { d, class: "halo" }), draw("path", { d, class: "line" }));
    }
  }

  function readOut(x, y) {
    const { group, rank, featureOf, planes, gains, intervals } = current, k = y * group.map[1] + x, t = planes[state.map][k] / 255;
    const value = isSpread() ? `spread ${(0.5 * t).toFixed(2)}`
      : t === 1 ? `${limit}× the mean or more` : `${(limit * t * t).toPrecision(2)}× the mean`;
    const place = rank[featureOf[k]], between = intervals ? `, between ${amount(intervals[2 * place])} and ${amount(intervals[2 * place + 1])}` : "";
    const gain = group.gain_unit ? ` (${amount(gains[place])} ${group.gain_unit}${between})` : "";
    $("readout").textContent = `${nameFeature(current, featureOf[k])}: ${spoken(current.layers[state.map])} ${value}; number ${count(place + 1)} of SEA's order${gain}`;
  }

  // ---- p, the charts, and what the model says ----------------------------------------------

  function setP(p) {
    const { n, noun, stops } = current.group;
    state.p = Math.max(0, Math.min(n, Math.round(p) || 0));
    $("p").value = String(stops.findLastIndex((stop) => stop <= state.p) + 1);
    $("p-exact").value = String(state.p);
    const text = state.p ? `the first ${count(state.p)} of ${count(n)} ${noun[1]} (${percent(state.p / n)})`
      : `none lit: the whole map is shown (${count(n)} ${noun[1]} in all)`, says = sayAt(state.p);
    $("p-text").textContent = text;
    fill("p-says", ...says);
    $("p-says").hidden = !says.length;
    $("p").setAttribute("aria-valuetext", `${text} ${$("p-says").textContent}`);
    moveMark($("gains").querySelector("svg"), state.p, logPlace(state.p, n));
    if (current.curve) moveMark($("curve").querySelector("svg"), state.p, rootPlace(state.p, n));
    showHeat();
  }

  // What the model says with p features: its own answers, or between two of them what lies between.
  function sayAt(p) {
    const { curve, group } = current;
    if (!curve || !p) return [];
    const write = (x) => (group.unit === "value" ? amount(x) : x.toFixed(2));
    const { counts, error } = curve, asked = counts.includes(p), k = counts.findLastIndex((stop) => stop <= p);
    const [left, removed] = [curve.left, curve.removed].map((side) => make("b", (asked ? "" : "≈ ") + write(readAt(side, p, counts))));
    const [one, two] = [curve.f_left, curve.f_removed].map((line) => write(readAt(line, p, [0, ...group.stops])));
    const source = asked ? "the model's own answers" : `between the model's own answers at ${count(counts[k])} and ${count(counts[k + 1])}`;
    const guess = `; f predicts ${one} and ${two}${error === null ? "" : ` ± ${write(error)}`}`;
    return ["Only these left: ", left, "; these removed: ", removed, " ", make("span", `(${source}${guess})`, "faint")];
  }

  function showCharts() {
    $("curve-card").hidden = !current.curve;
    fill("curve", ...(current.curve ? drawCurve(current) : []));
    fill("gains", ...drawGains(current));
  }

  // Ask the model itself about the best p, and add its answers to the curve.
  async function weigh() {
    const { curve } = current, p = state.p, own = current;
    if (!ask || !curve || curve.counts.includes(p)) return;
    const reply = await ask("weigh", { p });
    if (own !== current || !reply.point || curve.counts.includes(p)) return;
    const place = curve.counts.findIndex((stop) => stop > p);
    [curve.counts, curve.left, curve.removed].forEach((list, k) => list.splice(place, 0, reply.point[k]));
    showCharts();
    setP(state.p);
  }

  function mark(feature) {
    if (!marked.delete(feature)) marked.add(feature);
    showHeat();
    tryOut();
  }

  // What the model says without the marked features, or with only these.
  let trials = 0;
  async function tryOut() {
    const { noun } = current.group, trial = ++trials, cells = [...marked];
    $("without").setAttribute("aria-pressed", String(!state.keep));
    $("only").setAttribute("aria-pressed", String(state.keep));
    $("trial-hint").textContent = `${current.planes ? `Click ${noun[1]} of the map, or walk to them with the arrow keys and press space` : `Press ${noun[1]}`}: the model is asked without them.`;
    delete $("trial-says").dataset.count;
    if (!cells.length || !ask) { fill("trial-says"); return; }
    const words = `${state.keep ? "With only" : "Without"} ${cells.length} ${noun[cells.length === 1 ? 0 : 1]} the model says`;
    const reply = await ask("remove", { cells, keep: state.keep });
    if (trial !== trials) return;
    fill("trial-says", make("p", reply.error ?? words), make("ol", makeRanking(reply.top ?? []), "classes"));
    $("trial-says").dataset.count = String(cells.length);
  }

  function showCards() {
    const classes = listClasses(current), { checks, more } = listChecks(current);
    $("classes").hidden = classes.length < 2;
    fill("classes", ...classes);
    fill("trust", ...rankMembers(current));
    $("trust-card").hidden = !current.trust.length;
    fill("checks", ...checks);
    fill("assumed", ...more);
    fill("provenance", ...tellProvenance(current.group));
  }

  // ---- several inputs ------------------------------------------------------------------------

  function makeLinks() {
    const watcher = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(async ({ target }) => {
      watcher.unobserve(target);
      const { planes, image, group } = await source.open(Number(target.dataset.number));
      if (!planes) return;
      const panel = makePanel(planes[0], group.map, image);
      panel.style.aspectRatio = "1";
      target.firstChild.prepend(panel);
    }), { rootMargin: "150px" });
    links = inputs.map(({ name, written, number }) => {
      const link = make("a", make("span", [make("b", name), make("small", written)])), item = make("li", link);
      link.href = `#${number}`;
      item.dataset.number = number;
      watcher.observe(item);
      return item;
    });
    fill("list", ...links);
  }

  function markPlace() {
    if (!links.length) return;
    links.forEach((item, number) => item.firstChild.toggleAttribute("aria-current", number === state.input));
    // Scroll the list alone: scrollIntoView would move the page as well.
    const item = links[state.input];
    $("list").scrollTo(item.offsetLeft - $("list").offsetLeft - 80, item.offsetTop - $("list").offsetTop - 80);
  }

  const fromAddress = () => (inputs[Number(location.hash.slice(1))] ? Number(location.hash.slice(1)) : 0);

  // ---- downloads ---------------------------------------------------------------------------

  function drawMap() {
    const canvas = make("canvas"), context = canvas.getContext("2d"), [h, w] = current.group.map;
    const factor = Math.max(1, Math.round(768 / Math.max(h, w)));
    Object.assign(canvas, { width: w * factor, height: h * factor });
    context.imageSmoothingEnabled = Math.max(h, w) > 64;
    context.filter = $("image").style.filter || "none";
    if (current.image) context.drawImage($("image"), 0, 0, canvas.width, canvas.height);
    Object.assign(context, { filter: "none", imageSmoothingEnabled: false });
    context.drawImage($("heat"), 0, 0, canvas.width, canvas.height);
    return canvas;
  }

  function save(ending, blob) {
    const name = `${current.entry.number}_${current.entry.name}`.replace(/[^\p{L}\p{N}.-]+/gu, "_").slice(0, 80);
    saveAs(`sea_${name}.${ending}`, blob);
  }

  // ---- controls ----------------------------------------------------------------------------

  const on = (id, event, does) => $(id).addEventListener(event, does);
  on("maps", "change", (event) => { state.map = Number(event.target.value); showScale(); showHeat(); });
  on("opacity", "input", () => { state.opacity = Number($("opacity").value) / 100; showHeat(); });
  on("p", "input", () => setP(Number($("p").value) ? current.group.stops[Number($("p").value) - 1] : 0));
  on("p", "change", weigh);
  on("p-exact", "change", () => { setP(Number($("p-exact").value)); weigh(); });
  on("controls", "submit", (event) => event.preventDefault());
  on("without", "click", () => { state.keep = false; tryOut(); });
  on("only", "click", () => { state.keep = true; tryOut(); });
  on("clear", "click", () => { marked.clear(); showHeat(); tryOut(); });
  on("save-map", "click", () => drawMap().toBlob((blob) => save("png", blob)));
  on("save-order", "click", () => save("csv", new Blob([writeOrder(current)], { type: "text/csv" })));
  on("save-data", "click", () => save("json", new Blob([writeData(current)], { type: "application/json" })));

  // A position of the map, kept inside it.
  const within = (x, y) => {
    const [h, w] = current.group.map;
    return [Math.max(0, Math.min(w - 1, x)), Math.max(0, Math.min(h - 1, y))];
  };
  const pointAt = (event) => {
    const frame = $("heat").getBoundingClientRect(), [h, w] = current.group.map;
    return within(Math.floor(w * (event.clientX - frame.left) / frame.width), Math.floor(h * (event.clientY - frame.top) / frame.height));
  };
  on("heat", "pointermove", (event) => { if (current?.planes) readOut(...pointAt(event)); });
  if (ask) {
    const markAt = ([x, y]) => mark(current.featureOf[y * current.group.map[1] + x]);
    on("heat", "click", (event) => { cursor = pointAt(event); markAt(cursor); });
    on("heat", "keydown", (event) => {
      const [h, w] = current.group.map, [rows, columns] = current.group.feature_shape.length === 2 ? current.group.feature_shape : [16, 16];
      const [down, across] = [Math.max(1, Math.round(h / rows)), Math.max(1, Math.round(w / columns))];
      const move = { ArrowLeft: [-across, 0], ArrowRight: [across, 0], ArrowUp: [0, -down], ArrowDown: [0, down] }[event.key];
      if (event.key === " " || event.key === "Enter") markAt(cursor);
      else if (move) {
        cursor = within(cursor[0] + move[0], cursor[1] + move[1]);
        readOut(...cursor);
      } else return;
      event.preventDefault();
    });
  }

  const strip = $("scale").getContext("2d"), row = strip.createImageData(256, 1);
  for (let t = 0; t < 256; t++) row.data.set([...colours.subarray(3 * t, 3 * t + 3), 255], 4 * t);
  strip.putImageData(row, 0, 0);
  const many = inputs.length > 1;
  $("layout").classList.toggle("many", many);
  $("gallery").hidden = !many;
  if (many) {
    makeLinks();
    addEventListener("hashchange", () => { if (/^#\d*$/.test(location.hash)) show(fromAddress()); });
    // Arrow keys walk through the inputs, where nothing else has the focus that they move.
    addEventListener("keydown", ({ key, target }) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (by && inputs[state.input + by] && !target.closest("input, .scroll")) location.hash = String(state.input + by);
    });
  }
  if (inputs.length) show(many ? fromAddress() : 0);
  return { replace: (other) => { source = other; ({ inputs } = other); show(0); } };
}
