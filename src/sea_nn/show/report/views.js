// One function for each part of the page that shows the current input.

function showHeat() {
  const { group, entry, layers, rank, featureOf } = current;
  const name = spoken(layers[state.map]);
  $("opacity-value").textContent = `${Math.round(100 * state.opacity)} %`;
  if (group.kind === "table") { showBars(); return; }
  const lit = state.p > 0 ? (k) => rank[featureOf[k]] < state.p : null;
  paint($("heat"), current.planes[state.map], group.map, state.opacity, lit);
  $("image").style.filter = `grayscale(${Math.min(1, 1.4 * state.opacity)})`;
  $("heat").setAttribute("aria-label", `Map of ${name} for ${entry.name}` +
    (state.p ? `, the first ${count(state.p)} of ${count(group.n)} features lit` : ""));
}

// What layer k is, where its name alone does not tell: all but SEA and the members.
function explainMap(k) {
  const { layers, group } = current;
  if (k <= group.methods.length) return "";
  if (k === layers.length - 1) return "high where some members rank a feature high and others low, 0 where all rank it alike";
  if (k === layers.length - 2) return "the plain mean of the members' maps";
  const whole = { image: "picture", table: "row", series: "series" }[group.kind];
  return `which regions the model needs, from ${group.questions ? `${count(group.questions)} ` : ""}questions about halves of the ${whole}`;
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
      (current.group.gain_unit && state.map === 0 ? `; this one is in ${current.group.gain_unit}` : "");
  $("caption").classList.toggle("more", !spread);   // the top colour also stands for all above
  const text = explainMap(state.map), name = current.layers[state.map];
  $("about-map").textContent = `${name[0].toUpperCase()}${name.slice(1)}: ${text}.`;
  $("about-map").hidden = !text;
}

function showBars() {
  const { bars, group, rank, featureOf, layers } = current;
  const spread = state.map === layers.length - 1;
  const top = spread ? 0.5 : Math.max(...bars.slice(0, -1).flat());
  const order = bars[0].map((_, k) => k).sort((a, b) => rank[featureOf[a]] - rank[featureOf[b]]);
  const visible = current.all ? order : order.slice(0, MOST_BARS);
  const rows = visible.map((k) => {
    const row = make("div", undefined, "bar");
    if (state.p) row.classList.add(rank[featureOf[k]] < state.p ? "lit" : "unlit");
    const label = make("span", group.names ? group.names[k] : `feature ${k}`, "label");
    if (current.values) label.append(make("small", `= ${Number(current.values[k].toPrecision(4))}`));
    const track = make("span", undefined, "track");
    const fill = make("span", undefined, "fill");
    fill.style.width = `${100 * bars[state.map][k] / top}%`;
    track.append(fill);
    row.append(label, track, make("span", spread ? bars[state.map][k].toFixed(2) : percent(bars[state.map][k]), "amount"));
    return row;
  });
  if (!current.all && order.length > MOST_BARS) {
    const more = make("button", `Show all ${count(order.length)} features`);
    more.type = "button";
    more.addEventListener("click", () => { current.all = true; showBars(); });
    rows.push(more);
  }
  const unit = spread ? "spread of the members' percentile ranks" : "share of the map's total";
  const text = [`${spoken(layers[state.map])}: ${unit}, features in SEA's order`, explainMap(state.map)];
  $("bars").replaceChildren(...text.filter(Boolean).map((line) => make("p", line, "faint")), ...rows);
}

function showLines() {
  const { group, values } = current;
  for (const node of document.querySelectorAll(".channel")) node.remove();
  $("lines").toggleAttribute("hidden", group.kind !== "series" || !values);
  if (group.kind !== "series") return;
  const [channels, steps] = group.shape;
  $("lines").setAttribute("viewBox", `0 0 ${steps} ${channels}`);
  $("lines").replaceChildren();
  for (let c = 0; c < channels; c++) {
    const name = make("span", group.names ? group.names[c] : `channel ${c}`, "channel");
    name.style.top = `calc(${100 * c / channels}% + .4rem)`;
    $("picture").append(name);
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
  $("maps").classList.toggle("plain", group.kind !== "image");
  if (state.map >= layers.length) state.map = 0;
  $("maps").replaceChildren(...layers.map((layer, k) => {
    const label = make("label");
    const choice = make("input");
    Object.assign(choice, { type: "radio", name: "map", value: String(k), checked: k === state.map });
    const small = make("canvas");
    small.setAttribute("aria-hidden", "true");
    if (group.kind === "image") paint(small, planes[k], group.map, 1, null);
    label.title = explainMap(k);
    label.append(choice, small, spoken(layer));
    return label;
  }));
  const first = layers.length > 9 ? "the first 9 maps" : "maps";
  const other = inputs.length > 1 ? [make("kbd", "←"), " ", make("kbd", "→"), " other inputs, "] : [];
  $("keys").replaceChildren("Keys: ", ...other, make("kbd", "1"), " to ", make("kbd", Math.min(9, layers.length)), ` ${first}`);
}

const stopIndex = (p) => current.group.stops.findLastIndex((stop) => stop <= p);
function shareAt(p) {
  if (p === 0) return 0;
  const { stops } = current.group, { shares } = current, k = stopIndex(p);
  if (stops[k] === p) return shares[k];
  return shares[k] + (shares[k + 1] - shares[k]) * (p - stops[k]) / (stops[k + 1] - stops[k]);
}

function setP(p) {
  const { n } = current.group;
  state.p = Math.max(0, Math.min(n, Math.round(p) || 0));
  $("p").value = String(state.p ? stopIndex(state.p) + 1 : 0);
  $("p-exact").value = String(state.p);
  const text = state.p
    ? `the first ${count(state.p)} of ${count(n)} features (${percent(state.p / n)})`
    : `none lit: the whole map is shown (${count(n)} features in all)`;
  $("p-text").textContent = text;
  $("p").setAttribute("aria-valuetext", text);
  moveMarker();
  showHeat();
}

const box = { left: 48, right: 412, top: 30, bottom: 204 };
const acrossAt = (p) => box.left + (box.right - box.left) * (current.group.n > 1 ? Math.log(p) / Math.log(current.group.n) : 0);
const heightAt = (share) => box.bottom - (box.bottom - box.top) * share;

function showGains() {
  const { group, gains, shares } = current;
  const svg = draw("svg", { viewBox: "0 0 430 246", role: "img" });
  svg.setAttribute("aria-label", `The gain of each of ${count(group.n)} features in SEA's order, and the share of the total so far.`);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const y = heightAt(share);
    svg.append(draw("line", { x1: box.left, x2: box.right, y1: y, y2: y, class: "grid" }));
    svg.append(draw("text", { x: box.left - 7, y: y + 4, "text-anchor": "end" }, `${100 * share}%`));
  }
  for (let p = 1; p <= group.n; p *= 10) {
    svg.append(draw("text", { x: acrossAt(p), y: box.bottom + 19, "text-anchor": "middle" }, count(p)));
  }
  const trace = (series) => series.map((v, k) => `${k ? "L" : "M"}${acrossAt(group.stops[k]).toFixed(1)} ${heightAt(v).toFixed(1)}`).join("");
  svg.append(draw("path", { d: trace(gains), class: "gain" }), draw("path", { d: trace(shares), class: "share" }));
  svg.append(draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 38, "text-anchor": "middle" }, "features, in the order SEA took them (log scale)"));
  svg.append(draw("text", { x: box.left, y: 14, class: "name-share" }, "— share so far"));
  svg.append(draw("text", { x: box.right, y: 14, class: "name-gain", "text-anchor": "end" }, "- - gain, of the first"));
  svg.append(draw("line", { class: "now", y1: box.top, y2: box.bottom }), draw("circle", { class: "dot", r: 5 }));
  const note = make("p", "How fast the gain falls is mostly the learned function's doing; what was found is the order.", "faint");
  $("gains").replaceChildren(svg, note);
}

function moveMarker() {
  const line = document.querySelector("#gains .now"), dot = document.querySelector("#gains .dot");
  for (const node of [line, dot]) node.setAttribute("visibility", state.p ? "visible" : "hidden");
  if (!state.p) return;
  const x = acrossAt(state.p);
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  dot.setAttribute("cx", x);
  dot.setAttribute("cy", heightAt(shareAt(state.p)));
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
  if (!checks.length) $("checks").append(make("p", "No checks were recorded.", "faint"));
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
      const name = member !== "sea" ? spoken(member) : evaluations.sea ? "SEA and its questions" : "SEA";
      row.append(Object.assign(make("th", name), { scope: "row" }),
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
  const { group, entry, image } = current, [h, w] = group.map, series = group.kind === "series";
  $("name").textContent = entry.name;
  const facts = [...(group.unit === "value" ? [] : [`class ${entry.target}`]), `${group.unit} ${entry.written || "unknown"}`,
    `${count(group.n)} features`, `${group.methods.length} members`];
  $("facts").textContent = facts.join(" · ");
  document.querySelector(".stage").classList.toggle("wide", series);
  document.querySelector(".stage").classList.toggle("tall", group.kind === "table");
  $("picture").classList.toggle("bare", !image);
  for (const id of ["picture", "caption", "opacity-control"]) $(id).hidden = group.kind === "table";
  $("bars").hidden = group.kind !== "table";
  $("picture").style.aspectRatio = series ? "auto" : `${w} / ${h}`;
  $("picture").style.height = series ? `${Math.max(110, 96 * h)}px` : "";
  $("image").hidden = !image;
  $("readout").textContent = "Point at the map to read values.";
  if (image) {
    $("image").src = image;
    $("image").alt = `Input: ${entry.name}`;
    $("image").classList.toggle("small", Math.max(h, w) <= 64);
  }
  $("p").max = String(group.stops.length);
  $("p-exact").max = String(group.n);
}
