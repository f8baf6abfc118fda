// What every page is drawn with: elements, numbers as text, and the one painter of heat.

const VEIL = [8, 8, 12, 196];

const make = (tag, text, className) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
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
  plane.forEach((t, k) => out.set(isLit && !isLit(k) ? VEIL : [colours[3 * t], colours[3 * t + 1], colours[3 * t + 2], cover[t]], 4 * k));
  context.putImageData(picture, 0, 0);
}

// A small picture: the input in grey, and its heat over it.
function makePanel(plane, shape, image) {
  const panel = make("span", undefined, "panel"), canvas = make("canvas");
  if (image) panel.append(Object.assign(make("img"), { src: image, alt: "" }));
  if (plane) {
    paint(canvas, plane, shape, image ? 0.65 : 1);
    panel.append(canvas);
    panel.style.aspectRatio = shape[0] > 1 ? `${shape[1]} / ${shape[0]}` : "4";
  }
  return panel;
}

// Rows of panels with titles, all on one colour scale; each panel has its map packed, or only an image.
async function showStrips(place, rows) {
  const parts = await Promise.all(rows.map(async ({ title, note, panels }) => {
    const strip = make("div", undefined, "strip");
    for (const { title: name, map, shape, image } of panels) {
      const figure = make("figure");
      figure.append(makePanel(map && await unpack(map, Uint8Array), shape, image), make("figcaption", name));
      strip.append(figure);
    }
    const parts = [make("h2", title), note && make("p", note, "faint"), strip];
    return parts.filter(Boolean);
  }));
  place.replaceChildren(...parts.flat());
}

// A table of texts and numbers; the first column heads its row. Cells may be nodes.
function makeTable(headings, rows) {
  const table = make("table"), top = make("thead"), head = make("tr"), body = make("tbody");
  head.append(...headings.map((text) => Object.assign(make("th", text), { scope: "col" })));
  top.append(head);
  for (const cells of rows) {
    const row = make("tr");
    cells.forEach((value, k) => {
      const cell = k ? make("td") : Object.assign(make("th"), { scope: "row" });
      cell.append(value ?? "–");
      row.append(cell);
    });
    body.append(row);
  }
  table.append(top, body);
  return table;
}

function makePairs(entries) {
  const list = make("dl");
  for (const [key, value] of entries) {
    if (value === null || value === "") continue;
    list.append(make("dt", spoken(key)), make("dd", typeof value === "object" ? JSON.stringify(value) : String(value)));
  }
  return list;
}

function makeMeter(share, kind = "") {
  const meter = make("span", undefined, "meter"), fill = make("span", undefined, kind);
  fill.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
  meter.append(fill);
  return meter;
}

function saveAs(name, blob) {
  const link = Object.assign(make("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A cell of a CSV file; a name that a spreadsheet would run as a formula starts with an apostrophe.
const quote = (text) => `"${String(text).replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
