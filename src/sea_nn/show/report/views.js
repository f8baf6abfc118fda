// One function for each part of the page that shows the current input.

function showHeat() {
  const { group, entry, layers, rank, featureOf } = current;
  const name = spoken(layers[state.map]);
  $("opacity-value").textContent = `${Math.round(100 * state.opacity)} %`;
  if (!current.planes) { showBars(); return; }
  const lit = state.p > 0 ? (k) => rank[featureOf[k]] < state.p : null;
  paint($("heat"), current.planes[state.map], group.map, state.opacity, lit);
  $("image").style.filter = `grayscale(${Math.min(1, 1.4 * state.opacity)})`;
  $("heat").setAttribute("aria-label", `Map of ${name} for ${entry.name}` +
    (state.p ? `, the first ${count(state.p)} of ${count(group.n)} ${group.noun[1]} lit` : ""));
}

// What layer k is, where its name alone does not tell: all but SEA and the members.
function explainMap(k) {
  const { layers, group } = current;
  if (k <= group.methods.length) return "";
  if (k === layers.length - 1) return `high where some members rank a ${group.noun[0]} high and others low, 0 where all rank it alike`;
  if (k === layers.length - 2) return "the plain mean of the members' maps";
  return "evidence against the class: what it would gain without this";
}

// What one times the mean is in the unit of gains, where they have one.
function sayMean() {
  const { group, sides } = current;
  return group.gain_unit && `${amount(sides[0] / group.n)} ${group.gain_unit} a ${group.noun[0]}`;
}

function showScale() {
  const spread = state.map === current.layers.length - 1;
  const marks = spread
    ? [[0, "0"], [0.5, "0.25"], [1, "0.5"]]
    : [0, 0.5, 1, 2, 4, palette.limit].map((v) => [Math.sqrt(v / palette.limit), v ? `${v}×` : "0"]);
  $("ticks").replaceChildren(...marks.map(([place, text]) => {
    const mark = make("span", text);
    mark.style.left = `${100 * place}%`;
    return mark;
  }));
  $("unit").textContent = spread
    ? "spread of the members' percentile ranks: how far they disagree"
    : "attribution in multiples of the map's own mean; the same colour is the same share in every map" +
      (sayMean() && state.map === 0 ? `; here 1× is ${sayMean()}` : "");
  $("caption").classList.toggle("more", !spread);   // the top colour also stands for all above
  const text = explainMap(state.map), name = current.layers[state.map];
  $("about-map").textContent = `${name[0].toUpperCase()}${name.slice(1)}: ${text}.`;
  $("about-map").hidden = !text;
}

function showBars() {
  const { bars, group, rank, featureOf, layers, against, total } = current;
  const spread = state.map === layers.length - 1;
  const own = state.map === 0, both = bars[0].map((share, k) => share + (against?.[k] ?? 0));
  // Both of a feature's bars, for the class and against it, fit beside each other; shares have one scale in all maps.
  const top = spread ? 0.5 : Math.max(...both, ...(own && group.gain_unit ? [] : bars.slice(0, -1).flat())) || 1;
  const order = bars[0].map((_, k) => k).sort((a, b) => rank[featureOf[a]] - rank[featureOf[b]]);
  const signed = against?.some((v) => v > 0);
  const strength = (k) => Math.max(bars[0][k], against[k]);   // SEA's order ends with what is against
  if (signed) order.sort((a, b) => strength(b) - strength(a));
  const say = (share) => (own && group.gain_unit ? amount(share * total) : percent(share));
  const visible = current.all ? order : order.slice(0, MOST_BARS);
  const rows = visible.map((k) => {
    const row = make("div", undefined, "bar");
    if (state.p) row.classList.add(rank[featureOf[k]] < state.p ? "lit" : "unlit");
    const label = make("span", nameFeature(featureOf[k]), "label");
    if (current.values && group.plain) label.append(make("small", `= ${Number(current.values[k].toPrecision(4))}`));
    const track = make("span", undefined, "track");
    const fill = make("span", undefined, "fill");
    fill.style.width = `${100 * bars[state.map][k] / top}%`;
    track.append(fill);
    const number = make("span", spread ? bars[state.map][k].toFixed(2) : say(bars[state.map][k] < 0.0005 ? 0 : bars[state.map][k]), "amount");
    const contra = own && against ? against[k] : 0;
    if (contra > 0) {   // drawn from the right end, dashed, with its sign
      const other = make("span", undefined, "fill contra");
      other.style.width = `${100 * contra / top}%`;
      track.append(other);
      number.append(make("small", `−${say(contra)}`));
    }
    row.append(label, track, number);
    return row;
  });
  if (!current.all && order.length > MOST_BARS) {
    const more = make("button", `Show all ${count(order.length)} ${group.noun[1]}`);
    more.type = "button";
    more.addEventListener("click", () => { current.all = true; showBars(); });
    rows.push(more);
  }
  showWords();
  const unit = spread ? "spread of the members' percentile ranks" : own && group.gain_unit ? `in ${group.gain_unit}` : "share of the map's total";
  const note = own && signed ? "Striped, from the right: evidence against the class" : "";
  const sorted = signed ? "the strongest first" : "in SEA's order";
  const text = [note, `${spoken(layers[state.map])}: ${unit}, ${group.noun[1]} ${sorted}`, explainMap(state.map)];
  $("bars").replaceChildren(...text.filter(Boolean).map((line) => make("p", line, "faint")), ...rows);
}

// A text with its words marked as the chosen map weighs them; of those not lit, only the text.
function showWords() {
  const { words, bars, against, rank, featureOf } = current, spread = state.map === bars.length - 1;
  $("words").hidden = !words;
  if (!words) return;
  const text = make("p", undefined, "words");
  const net = bars[state.map].map((share, k) => share - (state.map === 0 && against ? against[k] : 0));
  const mean = net.reduce((sum, v) => sum + Math.abs(v), 0) / words.length || 1;
  words.forEach((word, k) => {
    const part = spread ? net[k] / 0.5 : Math.abs(net[k]) / mean / palette.limit;
    const level = Math.round(8 * Math.sqrt(Math.min(1, part))), bare = word.trim();
    const lit = !state.p || rank[featureOf[k]] < state.p;
    if (!bare || !lit || !level) { text.append(lit ? word : make("span", word, "faded")); return; }
    const [before, after] = word.split(bare);
    text.append(before, make("mark", bare, `${net[k] < 0 ? "against" : "for"}-${level}`), after);
  });
  $("words").replaceChildren(text);
}

function showLines() {
  const { group, values } = current;
  for (const node of document.querySelectorAll(".channel")) node.remove();
  $("lines").toggleAttribute("hidden", group.view !== "lines" || !values);
  if (group.view === "slices") labelSlices();
  if (group.view !== "lines") return;
  const [channels, steps] = group.shape;
  $("lines").setAttribute("viewBox", `0 0 ${steps} ${channels}`);
  $("lines").replaceChildren();
  for (let c = 0; c < channels; c++) {
    const name = make("span", group.names ? group.names[c] : `channel ${c}`, "channel");
    name.style.top = `calc(${100 * c / channels}% + .4rem)`;
    $("zoomed").append(name);
    if (!values) continue;
    const line = values.slice(c * steps, (c + 1) * steps);
    const known = line.filter((v) => v !== null);
    const low = Math.min(...known), span = Math.max(...known) - low || 1;
    let d = "", pen = "M";
    line.forEach((v, t) => {
      if (v === null) { pen = "M"; return; }
      d += `${pen}${t + 0.5} ${(c + 0.9 - 0.8 * (v - low) / span).toFixed(4)}`;
      pen = "L";
    });
    $("lines").append(draw("path", { d, class: "halo" }), draw("path", { d, class: "line" }));
  }
}

function showMaps() {
  const { layers, planes, group } = current;
  $("maps").classList.toggle("plain", !["picture", "slices"].includes(group.view));
  if (state.map >= layers.length) state.map = 0;
  $("maps").replaceChildren(...layers.map((layer, k) => {
    const label = make("label");
    const choice = make("input");
    Object.assign(choice, { type: "radio", name: "map", value: String(k), checked: k === state.map });
    const small = make("canvas");
    small.setAttribute("aria-hidden", "true");
    if (planes && group.view !== "lines") paint(small, planes[k], group.map, 1, null);
    label.title = explainMap(k);
    label.append(choice, small, spoken(layer));
    return label;
  }));
  const zoom = planes ? [", ", make("kbd", "+"), " ", make("kbd", "−"), " zoom"] : [];
  const first = layers.length > 9 ? "the first 9 maps" : "maps";
  const other = inputs.length > 1 ? [make("kbd", "←"), " ", make("kbd", "→"), " other inputs, "] : [];
  $("keys").replaceChildren("Keys: ", ...other, make("kbd", "1"), " to ", make("kbd", Math.min(9, layers.length)), ` ${first}`, ...zoom);
}

function showAgreement() {
  const names = ["SEA", ...current.group.methods].map(spoken);
  const table = make("table"), head = make("tr"), body = make("tbody"), top = make("thead");
  head.append(make("td"), ...names.map((name, k) => Object.assign(make("th", k), { scope: "col", title: name, ariaLabel: name })));
  top.append(head);
  current.agreement.forEach((values, r) => {
    const row = make("tr");
    const title = Object.assign(make("th"), { scope: "row" });
    title.append(make("span", r, "number"), " ", names[r]);
    row.append(title);
    for (const v of values) {
      const cell = make("td", v === null ? "–" : v <= -0.005 ? "−" : "");
      if (v === null) cell.title = "a constant map ranks nothing";
      else {
        const [whole, rest] = Math.abs(v).toFixed(2).split(".");
        const parts = [whole, `.${rest}`], spare = whole === "0" ? 0 : 1;   // left out where room is short
        parts[spare] = make("span", parts[spare], "spare");
        cell.append(...parts);
        cell.style.background = `rgba(${v < 0 ? "33,102,172" : "178,24,43"},${(0.9 * Math.abs(v)).toFixed(3)})`;
        cell.classList.toggle("strong", v > 0.84 || v < -0.97);   // where white reads better than black
      }
      row.append(cell);
    }
    body.append(row);
  });
  table.append(top, body);
  $("agreement").replaceChildren(table);
  hintSideways();
}

function hintSideways() {
  $("sideways").hidden = $("agreement").scrollWidth <= $("agreement").clientWidth;
}

function showChecks() {
  const { methods } = current.group, checks = [...current.checks, ...current.group.checks];
  // Advice stays as it is: names in it belong to code.
  const say = (text) => methods.reduce((said, name) => said.replaceAll(name, spoken(name)), text);
  $("checks").replaceChildren(...checks.map((check) => {
    const item = make("li"), text = make("div");
    text.append(make("b", spoken(check.subject)), `: ${say(check.message)}`);
    if (check.advice) text.append(make("div", check.advice, "faint"));
    item.append(make("span", check.level, `level ${check.level}`), text);
    return item;
  }));
  if (!checks.length) $("checks").append(make("li", "No checks were recorded.", "faint"));
}

function pairs(entries) {
  const list = make("dl");
  for (const [key, value] of entries) {
    if (value === null || value === "") continue;
    list.append(make("dt", spoken(key)), make("dd", typeof value === "object" ? JSON.stringify(value) : String(value)));
  }
  return list;
}

function showProvenance() {
  const { config, members: options = {}, call = {}, versions, seconds, evaluations, ...rest } = current.group.provenance;
  const parts = [pairs(Object.entries(rest))];
  const members = [...new Set([...Object.keys(seconds), ...Object.keys(evaluations)])];
  if (members.length) {
    const table = make("table"), head = make("tr"), top = make("thead"), body = make("tbody");
    head.append(...["member", "seconds", "evaluations"].map((t) => Object.assign(make("th", t), { scope: "col" })));
    for (const member of members) {
      const row = make("tr"), time = seconds[member];
      const all = Object.values(evaluations).reduce((sum, n) => sum + n, 0);
      const spent = member === "total" ? all : evaluations[member];
      const name = Object.assign(make("th", member === "sea" ? "SEA" : spoken(member)), { scope: "row" });
      if (member === "sea" && evaluations.sea) name.append(" and its ", term("question", "questions"));
      row.append(name,
        make("td", typeof time === "number" ? duration(time) : "–"), make("td", spent === undefined ? "–" : count(spent)));
      body.append(row);
    }
    top.append(head);
    table.append(top, body);
    parts.push(table);
  }
  for (const [name, values] of [["configuration", config], ["members' options", options], ["call", call], ["versions", versions]]) {
    if (!Object.keys(values).length) continue;
    const details = make("details");
    details.append(make("summary", name), pairs(Object.entries(values)));
    parts.push(details);
  }
  if (!parts.some((part) => part.childElementCount)) parts.push(make("p", "Nothing was recorded.", "faint"));
  $("provenance").replaceChildren(...parts);
}

function showStage() {
  const { group, entry, image, planes } = current, [h, w] = group.map, lines = group.view === "lines";
  $("name").textContent = entry.name;
  $("facts").replaceChildren(...(group.unit === "value" ? [] : [`class ${entry.target} · `]),
    `${group.unit} ${entry.written || "unknown"} · `, term("feature", `${count(group.n)} ${group.noun[1]}`),
    " · ", term("member", `${group.methods.length} member${group.methods.length === 1 ? "" : "s"}`),
    current.slices ? ` · ${current.slices.length} of ${group.shape[0]} slices, the strongest of each part` : "");
  $("noun").textContent = group.noun[1];
  const stage = document.querySelector(".stage").classList;
  stage.toggle("wide", lines);
  stage.toggle("tall", !planes);
  $("picture").classList.toggle("bare", !image);
  for (const id of ["picture", "caption", "opacity-control", "zooming", "save-map"]) $(id).hidden = !planes;
  $("bars").hidden = Boolean(planes);
  $("words").hidden = !current.words;
  $("swipe-control").hidden = !image;
  $("picture").style.aspectRatio = lines ? "auto" : `${w} / ${h}`;
  $("picture").style.height = lines ? `${Math.max(110, 96 * h)}px` : "";
  $("image").hidden = !image;
  $("readout").textContent = "Point at the map to read values.";
  if (image) {
    $("image").src = $("plain").src = image;
    $("image").alt = `Input: ${entry.name}`;
    for (const id of ["image", "plain"]) $(id).classList.toggle("small", Math.max(h, w) <= 64);
  }
  $("p").max = String(group.stops.length);
  $("p-exact").max = String(group.n);
  setZoom(1);
  setSwipe(state.swipe);
}

// The likeliest classes, with the one that is explained, and the one it is explained against.
function showClasses() {
  const { classes, entry, rival } = current;
  $("classes").hidden = classes.length < 2;
  $("classes").replaceChildren(...classes.map(([number, name, score]) => {
    const row = make("li"), meter = make("span", undefined, "meter"), fill = make("span");
    fill.style.width = `${100 * (score || 0)}%`;
    meter.append(fill);
    const label = make("span", name, "label");
    if (number === entry.target) label.append(" ", make("small", "explained"));
    if (number === rival) label.append(" ", make("small", "explained against"));
    row.append(label, meter, make("span", score === null ? "–" : score.toFixed(2), "amount"));
    return row;
  }));
}

function labelSlices() {
  const { slices, group } = current, [rows, columns] = group.tiles;
  slices.forEach((slice, k) => {
    const name = make("span", `slice ${slice}`, "channel");
    name.style.top = `calc(${100 * Math.floor(k / columns) / rows}% + .3rem)`;
    name.style.left = `calc(${100 * (k % columns) / columns}% + .3rem)`;
    $("zoomed").append(name);
  });
}

// A feature's name: a column's, a channel and a step, or a place.
function nameFeature(k) {
  const { group, words } = current, { names, feature_shape: space } = group;
  if (words && group.plain) return words[k].trim() || `word ${k}`;
  if (space.length === 1) return group.plain && names ? names[k] : `${group.noun[0]} ${k}`;
  const place = [];
  for (let axis = space.length - 1, rest = k; axis >= 0; axis--) {
    place.unshift(rest % space[axis]);
    rest = Math.floor(rest / space[axis]);
  }
  if (group.view === "lines") return `${names ? names[place[0]] : `channel ${place[0]}`} at ${place[1]}`;
  return `(${place.join(", ")})`;
}
