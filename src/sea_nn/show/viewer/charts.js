// Two charts along p: what the model says, and what features add. The slider moves a mark in both.

const MOST_INTERVALS = 256;
const box = { left: 48, right: 412, top: 30, bottom: 204 };
const along = (t) => box.left + (box.right - box.left) * t;
const up = (t) => box.bottom - (box.bottom - box.top) * Math.min(1, Math.max(0, t));
const trace = (points) => points.map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

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

function moveMark(svg, p, t) {
  const line = svg.querySelector(".now");
  line.setAttribute("visibility", p ? "visible" : "hidden");
  for (const end of ["x1", "x2"]) line.setAttribute(end, along(t));
}

// The value at p of numbers known at the places `at`, which rise from 0 to n.
function readAt(values, p, at) {
  const k = at.findLastIndex((stop) => stop <= p);
  if (at[k] === p || k === at.length - 1) return values[k];
  return values[k] + (values[k + 1] - values[k]) * (p - at[k]) / (at[k + 1] - at[k]);
}

const rootPlace = (p, n) => Math.sqrt(p / n);
const logPlace = (p, n) => (n > 1 ? Math.log(Math.max(1, p)) / Math.log(n) : 0);

// What the model says with the best p features left, and with these removed.
function drawCurve({ curve, group }) {
  const every = [...curve.left, ...curve.removed, ...curve.f_left, ...curve.f_removed], at = [0, ...group.stops];
  const value = group.unit === "value";
  const low = value ? Math.min(...every) : 0, span = value ? Math.max(...every) - low || 1 : 1;
  const place = (p) => along(rootPlace(p, group.n)), height = (v) => up((v - low) / span);
  const across = [0, 1 / 16, 1 / 4, 1].map((t) => [Math.sqrt(t), count(Math.round(t * group.n))]);
  const label = `The model's ${group.unit} with the best p ${group.noun[1]} left and with these removed; ` +
    curve.counts.map((p, k) => `${p}: ${amount(curve.left[k])} and ${amount(curve.removed[k])}`).join("; ");
  const svg = makeChart(label, across, roundMarks(low, low + span), `p, the best ${group.noun[1]} (square-root scale)`);
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
  const error = curve.error === null ? "" : ` (± ${Number(curve.error.toPrecision(2))})`;
  const note = `Upright: ${group.unit}. Points are the model's own answers; lines are what f predicts, bands its error${error}.`;
  return [svg, make("p", note, "faint")];
}

// What each feature adds, with the interval it lies in where that is known.
function drawGains({ group, gains, intervals, sums, sides: [above, below] }) {
  const unit = group.gain_unit, { n, noun, stops } = group, across = [];
  const added = Array.from(gains, (g) => g / (unit ? 1 : above || 1));   // without a unit, shares of the gains above 0
  const every = [0, ...added, ...(intervals ?? [])];
  const low = every.reduce((a, b) => Math.min(a, b)), high = every.reduce((a, b) => Math.max(a, b)) || (low < 0 ? 0 : 1);
  const at = (p) => along(logPlace(p, n)), height = (v) => up((v - low) / (high - low));
  for (let p = 1; p <= n; p *= 10) across.push([logPlace(p, n), count(p)]);
  const upward = roundMarks(low, high).map(([t, text]) => [t, unit ? text : percent(Number(text))]);
  const svg = makeChart(`The gain of each of ${count(n)} ${noun[1]} in SEA's order.`, across, upward, `${noun[1]}, in SEA's order (log scale)`);
  const shown = n <= MOST_INTERVALS ? Array.from(gains, (_, k) => k + 1) : stops;
  if (intervals) for (const p of shown) {
    const [from, to] = [intervals[2 * p - 2], intervals[2 * p - 1]], unsure = from <= 0 && to >= 0;
    svg.append(draw("line", { x1: at(p), x2: at(p), y1: height(from), y2: height(to), class: unsure ? "interval unsure" : "interval" }));
  }
  svg.append(draw("path", { d: trace(stops.map((p) => [at(p), height(added[p - 1])])), class: "gain" }));
  svg.append(draw("text", { x: box.left, y: 14, class: "name-gain" }, unit ? `gain, ${unit}` : "gain, share of the total"));
  const note = make("p", undefined, "faint");
  if (intervals) note.append("Upright lines are the intervals that gains lie in; faint ones hold 0: whether these features count is not known. ");
  if (sums) {
    const [sum, all, none] = sums, off = Math.abs(sum - (all - none)) > 0.002 * Math.max(1, Math.abs(all - none));
    note.append(`Gains are in ${unit} and sum to ${amount(sum)}`,
      below ? ` (${amount(above)} for it, which the map has, ${amount(below)} against it)` : "", "; the model's own difference is ",
      `${amount(all)} (whole input) − ${amount(none)} (nothing left) = ${amount(all - none)}: `,
      make("b", off ? "they differ" : "checked, equal", off ? "warn" : "ok"), ".");
  } else note.append("How fast the gain falls is mostly the learned function's doing; what was found is the order.");
  return [svg, note];
}
