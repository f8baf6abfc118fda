// Two charts along p: what the model says, and what features add. The slider moves a mark in both.

const box = { left: 48, right: 412, top: 30, bottom: 204 };
const along = (t) => box.left + (box.right - box.left) * t;
const up = (t) => box.bottom - (box.bottom - box.top) * t;
const trace = (points) => points.map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const amount = (x) => String(Number(x.toPrecision(3))).replace("-", "−");

// Marks at round numbers from low to high, as [part of the way, text].
function roundMarks(low, high) {
  const rough = (high - low) / 4 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((k) => k * power >= rough * 0.999), marks = [];
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-9); k++) marks.push([(k * step - low) / (high - low || 1), amount(k * step)]);
  return marks;
}

function makeChart(label, across, upward, below) {
  const svg = draw("svg", { viewBox: "0 0 430 246", role: "img", "aria-label": label });
  for (const [t, text] of upward) {
    svg.append(draw("line", { x1: box.left, x2: box.right, y1: up(t), y2: up(t), class: "grid" }));
    svg.append(draw("text", { x: box.left - 7, y: up(t) + 4, "text-anchor": "end" }, text));
  }
  for (const [t, text] of across) svg.append(draw("text", { x: along(t), y: box.bottom + 19, "text-anchor": "middle" }, text));
  svg.append(draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 38, "text-anchor": "middle" }, below));
  svg.append(draw("line", { class: "now", y1: box.top, y2: box.bottom, visibility: "hidden" }));
  return svg;
}

function mark(svg, t, dots) {
  for (const node of svg.querySelectorAll(".now, .dot")) node.setAttribute("visibility", state.p ? "visible" : "hidden");
  const line = svg.querySelector(".now");
  for (const end of ["x1", "x2"]) line.setAttribute(end, along(t));
  svg.querySelectorAll(".dot").forEach((dot, k) => {
    dot.setAttribute("cx", along(t));
    dot.setAttribute("cy", dots[k]);
  });
}

// The value at p of numbers known at the places `at`, which rise from 0 to n.
function readAt(values, p, at = [0, ...current.group.stops]) {
  const k = at.findLastIndex((stop) => stop <= p);
  if (at[k] === p || k === at.length - 1) return values[k];
  return values[k] + (values[k + 1] - values[k]) * (p - at[k]) / (at[k + 1] - at[k]);
}

function setP(p) {
  const { n, noun } = current.group;
  state.p = Math.max(0, Math.min(n, Math.round(p) || 0));
  $("p").value = String(current.group.stops.findLastIndex((stop) => stop <= state.p) + 1);
  $("p-exact").value = String(state.p);
  const text = state.p
    ? `the first ${count(state.p)} of ${count(n)} ${noun[1]} (${percent(state.p / n)})`
    : `none lit: the whole map is shown (${count(n)} ${noun[1]} in all)`, says = sayAt(state.p);
  $("p-text").textContent = text;
  $("p-says").replaceChildren(...says);
  $("p-says").hidden = !says.length;
  $("p").setAttribute("aria-valuetext", `${text} ${$("p-says").textContent}`);
  moveMarks();
  showHeat();
}

// What the model says with p features: its own answers, or between two of them what lies between.
function sayAt(p) {
  const { curve, group } = current;
  if (!curve || !p) return [];
  const write = (x) => (group.unit === "value" ? amount(x) : x.toFixed(2));
  const { counts, error } = curve, asked = counts.includes(p), k = counts.findLastIndex((stop) => stop <= p);
  const [left, removed] = [curve.left, curve.removed].map((side) => make("b", (asked ? "" : "≈ ") + write(readAt(side, p, counts))));
  const [one, two] = [curve.f_left, curve.f_removed].map((line) => write(readAt(line, p)));
  const source = asked ? "the model's own answers" : `between the model's own answers at ${count(counts[k])} and ${count(counts[k + 1])}`;
  const guess = `; f predicts ${one} and ${two}${error === null ? "" : ` ± ${write(error)}`}`;
  return ["Only these left: ", left, "; these removed: ", removed, " ", make("span", `(${source}${guess})`, "faint")];
}

function showCurve() {
  const { curve, group } = current;
  $("curve-card").hidden = !curve;
  if (!curve) return;
  const every = [...curve.left, ...curve.removed, ...curve.f_left, ...curve.f_removed];
  const value = group.unit === "value";
  const low = value ? Math.min(...every) : 0, span = value ? Math.max(...every) - low || 1 : 1;
  const place = (p) => along(Math.sqrt(p / group.n)), height = (v) => up(Math.min(1, Math.max(0, (v - low) / span)));
  const across = [0, 1 / 16, 1 / 4, 1].map((t) => [Math.sqrt(t), count(Math.round(t * group.n))]);
  const label = `The model's ${group.unit} with the best p ${group.noun[1]} left and with these removed; ` +
    curve.counts.map((p, k) => `${p}: ${amount(curve.left[k])} and ${amount(curve.removed[k])}`).join("; ");
  const svg = makeChart(label, across, roundMarks(low, low + span), `p, the best ${group.noun[1]} (square-root scale)`);
  const at = [0, ...group.stops];
  for (const side of ["left", "removed"]) {
    const line = curve[`f_${side}`], error = curve.error || 0;
    const band = [...at.map((p, k) => [place(p), height(line[k] + error)]),
      ...at.map((p, k) => [place(p), height(line[k] - error)]).reverse()];
    svg.append(draw("path", { d: `${trace(band)}Z`, class: `band ${side}` }));
    svg.append(draw("path", { d: trace(at.map((p, k) => [place(p), height(line[k])])), class: `line ${side}` }));
    curve.counts.forEach((p, k) => svg.append(side === "left"
      ? draw("circle", { cx: place(p), cy: height(curve.left[k]), r: 4.5, class: `point ${side}` })
      : draw("rect", { x: place(p) - 4, y: height(curve.removed[k]) - 4, width: 8, height: 8, class: `point ${side}` })));
  }
  svg.append(draw("text", { x: box.left, y: 14, class: "name-left" }, "● — only these left"));
  svg.append(draw("text", { x: box.right, y: 14, class: "name-removed", "text-anchor": "end" }, "■ - - these removed"));
  const note = make("p", undefined, "faint");
  const seen = curve.every ? ", among those about every set; " : ", which f did not learn from; ";
  note.append("Points are the model's own ", term("answer", "answers"), seen, "lines are what f predicts, bands its error",
    curve.error === null ? "" : ` (± ${Number(curve.error.toPrecision(2))})`, ".");
  $("curve").replaceChildren(svg, note);
}

function showGains() {
  const { group, gains, sums, sides: [above, below] } = current, unit = group.gain_unit;
  const reached = [0], whole = unit ? 1 : above || below || 1;   // without a unit, shares of the gains above 0
  gains.forEach((g, k) => reached.push(reached[k] + g / whole));
  const high = reached.reduce((a, b) => Math.max(a, b)) || (below ? 0 : 1);
  const low = below ? Math.min(reached.reduce((a, b) => Math.min(a, b)), -high / 4) : 0;
  const place = (v) => (v - low) / (high - low), zero = place(0);
  // Gains have a scale of their own and the same 0: the largest on which they fit.
  const peak = gains.reduce((a, b) => Math.max(a, b), 0), dip = below ? gains.reduce((a, b) => Math.min(a, b), 0) : 0;
  const scale = Math.min(peak ? (1 - zero) / peak : Infinity, dip ? -zero / dip : Infinity);
  current.reached = [0, ...group.stops].map((p) => place(reached[p]));
  const across = [];
  for (let p = 1; p <= group.n; p *= 10) across.push([logPlace(p), count(p)]);
  const upward = roundMarks(low, high).map(([t, text]) => [t, unit ? text : `${Math.round(100 * (low + t * (high - low)))}%`]);
  const label = `The gain of each of ${count(group.n)} ${group.noun[1]} in SEA's order, and the sum so far.`;
  const svg = makeChart(label, across, upward, `${group.noun[1]}, in the order SEA took them (log scale)`);
  const points = (values) => group.stops.map((p, k) => [along(logPlace(p)), up(Math.min(1, Math.max(0, values(p, k))))]);
  svg.append(draw("path", { d: trace(points((p) => (peak || dip ? zero + scale * gains[p - 1] : 0))), class: "gain" }));
  svg.append(draw("path", { d: trace(points((p) => place(reached[p]))), class: "line left" }), draw("circle", { class: "dot", r: 5 }));
  svg.append(draw("text", { x: box.left, y: 14, class: "name-left" }, unit ? `— sum, ${unit}` : "— share so far"));
  svg.append(draw("text", { x: box.right, y: 14, class: "name-gain", "text-anchor": "end" },
    unit ? `- - gain, first ${amount(gains[0])}${below ? `, last ${amount(gains.at(-1))}` : ""}` : "- - gain, of the first"));
  const note = make("p", undefined, "faint");
  if (sums) {
    const [sum, all, none] = sums, off = Math.abs(sum - (all - none)) > 0.002 * Math.max(1, Math.abs(all - none));
    note.append(term("gain", "Gains"), " are in ", term("unit", group.gain_unit), `. They sum to ${amount(sum)}`,
      below ? ` (${amount(above)} for it, which the map has, ${amount(below)} against it)` : "", "; the model's own difference is ",
      `${amount(all)} (whole input) − ${amount(none)} (nothing left) = ${amount(all - none)}: `,
      make("b", off ? "they differ" : "checked, equal", off ? "warn" : "ok"), ".");
  } else note.append("How fast the ", term("gain"), " falls is mostly the learned function's doing; what was found is the order.");
  $("gains").replaceChildren(svg, note);
}

const logPlace = (p) => (current.group.n > 1 ? Math.log(Math.max(1, p)) / Math.log(current.group.n) : 0);

function moveMarks() {
  const chart = (id) => document.querySelector(`#${id} svg`);
  mark(chart("gains"), logPlace(state.p), [up(Math.min(1, Math.max(0, readAt(current.reached, state.p))))]);
  if (current.curve) mark(chart("curve"), Math.sqrt(state.p / current.group.n), []);
}
