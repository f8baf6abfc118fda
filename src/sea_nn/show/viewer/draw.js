// What every page is drawn with: elements, numbers as text, and the one painter of heat.

const VEIL = [8, 8, 12, 196];

// An element with its content: a text, a node, or a list of them; what is missing or false is left out.
const make = (tag, content, className) => {
  const node = document.createElement(tag);
  node.append(...[content ?? []].flat().filter((part) => part !== false && part !== null && part !== undefined));
  if (className) node.className = className;
  return node;
};
const draw = (tag, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
const percent = (x) => (x >= 0.0995 || x === 0 ? Math.round(100 * x) : (100 * x).toPrecision(2)) + "\u00a0%";
const count = (n) => n.toLocaleString("en");
const amount = (x) => String(Number(x.toPrecision(3))).replace("-", "−");
const spoken = (name) => name.replaceAll("_", " ");

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
async function unpack(text, Kind) {
  const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Kind(await new Response(stream).arrayBuffer());
}

let colours, limit;   // the scale: 256 colours, and the multiple of the mean that the last stands for
function usePalette(palette) {
  colours = bytes(palette.colours);
  limit = palette.limit;
}

// Heat on a canvas, one pixel a position. How much of what lies below a colour covers: nothing at opacity 0,
// all at 1, hot more than cold. Positions that are not lit are veiled.
function paint(canvas, plane, [h, w], opacity = 1, isLit = null) {
  canvas.width = w;
  canvas.height = h;
  const context = canvas.getContext("2d"), picture = context.createImageData(w, h), out = picture.data;
  const cover = Array.from({ length: 256 }, (_, t) => Math.round(255 * (1 - (1 - opacity) ** (0.1 + 2.5 * (t / 255) ** 1.5))));
  plane.forEach((t, k) => out.set(isLit && !isLit(k) ? VEIL : [...colours.subarray(3 * t, 3 * t + 3), cover[t]], 4 * k));
  context.putImageData(picture, 0, 0);
}

// A small picture: the input in grey, and its heat over it.
function makePanel(plane, shape, image) {
  const panel = make("span", image && Object.assign(make("img"), { src: image, alt: "" }), "panel"), canvas = make("canvas");
  if (plane) {
    paint(canvas, plane, shape, image ? 0.65 : 1);
    panel.append(canvas);
    panel.style.aspectRatio = shape[0] > 1 ? `${shape[1]} / ${shape[0]}` : "4";
  }
  return panel;
}

// Rows of panels with titles, all on one colour scale; each panel has its map packed, or only an image.
async function showStrips(place, rows) {
  const parts = await Promise.all(rows.map(async ({ title, note, panels }) => [
    make("h2", title),
    note ? make("p", note, "faint") : "",
    make("div", await Promise.all(panels.map(async ({ title: name, map, shape, image }) =>
      make("figure", [makePanel(map && await unpack(map, Uint8Array), shape, image), make("figcaption", name)]))), "strip"),
  ]));
  place.replaceChildren(...parts.flat());
}

// A table of texts and numbers; the first column heads its row. Cells may be nodes.
function makeTable(headings, rows) {
  const head = (text, scope) => Object.assign(make("th", text), { scope });
  return make("table", [
    make("thead", make("tr", headings.map((text) => head(text, "col")))),
    make("tbody", rows.map(([name, ...rest]) => make("tr", [head(name, "row"), ...rest.map((value) => make("td", value ?? "–"))]))),
  ]);
}

function makePairs(entries) {
  const known = entries.filter(([, value]) => value !== null && value !== "");
  const write = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
  return make("dl", known.flatMap(([key, value]) => [make("dt", spoken(key)), make("dd", write(value))]));
}

function makeMeter(share, kind) {
  const fill = make("span", null, kind);
  fill.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
  return make("span", fill, "meter");
}

// Names, each with a bar and a number: classes, members, answers.
const makeRanking = (rows) => rows.map(([name, share, text]) =>
  make("li", [make("span", name, "label"), makeMeter(share), make("span", text, "amount")]));

function saveAs(name, blob) {
  const link = Object.assign(make("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A cell of a CSV file; a name that a spreadsheet would run as a formula starts with an apostrophe.
const quote = (text) => `"${String(text).replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
