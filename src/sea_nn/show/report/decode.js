// Reading what the report holds, and painting maps. The scripts run as one, this one first.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const VEIL = [8, 8, 12, 196];
const MOST_BARS = 20;
const TOOLS_FROM = 8;

const read = (id) => JSON.parse($(id).textContent);
const make = (tag, text, className) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};
const draw = (tag, attributes, text) => {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
const percent = (x) => (x >= 0.0995 || x === 0 ? Math.round(100 * x) : (100 * x).toPrecision(2)) + "\u00a0%";
const count = (n) => n.toLocaleString("en");
const duration = (s) => s.toLocaleString("en", { minimumFractionDigits: s < 0.995 ? 2 : 1, maximumFractionDigits: s < 0.995 ? 2 : 1 });
const ordinal = (k) => {
  const tail = k % 100 > 10 && k % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][k % 10] || "th";
  return count(k) + tail;
};
const spoken = (name) => name.replaceAll("_", " ");

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
async function unpack(text, Kind) {
  const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Kind(await new Response(stream).arrayBuffer());
}

// Gains come as differences of their bits, of which the lower half may have been left out.
async function unpackGains(text, kept) {
  const steps = await unpack(text, kept === 32 ? Uint32Array : Uint16Array);
  const bits = new Uint32Array(steps.length);
  let last = 0;
  steps.forEach((step, k) => {
    last = kept === 32 ? (last + step) >>> 0 : (last + step) & 0xffff;
    bits[k] = kept === 32 ? last : last << 16;
  });
  return new Float32Array(bits.buffer);
}

const palette = read("palette");
const colours = bytes(palette.colours);
const inputs = read("index").inputs.map(([group, name, target, score, agreement, written], number) =>
  ({ group, name, target, score, agreement, number, written: score === null ? "" : written }));
const groups = new Map();
const state = { input: null, map: 0, opacity: 0.65, p: 0, zoom: 1, swipe: 0 };
let shown = [...inputs];   // the gallery's order, after sorting and filtering
let current = null;        // the decoded input on the stage
let wanted = 0;            // counts requests, so that a slow decode never replaces a newer one

async function openGroup(number) {
  if (!groups.has(number)) {
    const group = read(`group-${number}`);
    if (group.features) group.featureOf = await unpack(group.features, Uint32Array);
    else if (group.plain) group.featureOf = placePlain(group);
    groups.set(number, group);
  }
  return groups.get(number);
}

// Every pixel is a feature; where maps were shrunk, a drawn pixel stands for the one at its middle.
function placePlain({ shape, map }) {
  if (shape.length === 1) return Uint32Array.from({ length: shape[0] }, (_, k) => k);
  const [H, W] = shape, [h, w] = map;
  return Uint32Array.from({ length: h * w }, (_, k) =>
    Math.floor((Math.floor(k / w) + 0.5) * H / h) * W + Math.floor((k % w + 0.5) * W / w));
}

async function openInput(number) {
  const entry = inputs[number];
  const group = await openGroup(entry.group);
  const data = read(`input-${number}`);
  data.group = group;
  data.entry = entry;
  data.featureOf = data.features ? await unpack(data.features, Uint32Array) : group.featureOf;
  const order = await unpack(data.order, group.n <= 65536 ? Uint16Array : Uint32Array);
  data.order = order;
  data.rank = new Uint32Array(group.n);
  order.forEach((feature, k) => { data.rank[feature] = k; });
  data.gains = await unpackGains(data.gains, group.gain_bits);
  const contra = group.against ? ["against"] : [];
  data.layers = ["SEA", ...group.methods, ...contra, "Agg-Mean", "disagreement"];
  if (data.maps) {
    const all = await unpack(data.maps, Uint8Array);
    const size = group.map[0] * group.map[1];
    data.planes = data.layers.map((_, k) => all.subarray(k * size, (k + 1) * size));
  }
  return data;
}

// How much of the picture a colour covers: nothing at opacity 0, all at 1, hot more than cold.
const coverOf = (opacity) => Uint8Array.from({ length: 256 }, (_, t) =>
  Math.round(255 * (1 - (1 - opacity) ** (0.1 + 2.5 * (t / 255) ** 1.5))));

function paint(canvas, plane, [h, w], opacity, isLit) {
  canvas.width = w;
  canvas.height = h;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(w, h);
  const cover = coverOf(opacity), out = picture.data;
  for (let k = 0; k < plane.length; k++) {
    if (isLit && !isLit(k)) { out.set(VEIL, 4 * k); continue; }
    const t = plane[k];
    out[4 * k] = colours[3 * t];
    out[4 * k + 1] = colours[3 * t + 1];
    out[4 * k + 2] = colours[3 * t + 2];
    out[4 * k + 3] = cover[t];
  }
  context.putImageData(picture, 0, 0);
}
