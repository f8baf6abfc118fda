// Words explained, zoom, swipe and downloads.

const TERMS = {
  feature: ({ noun, n }) => `A feature is what SEA takes or leaves as one: here a ${noun[0]}. There are ${count(n)}.`,
  member: () => "A member is an attribution method, such as saliency or Grad-CAM. SEA learns one map from several.",
  question: () => "A question shows the model a part of the input; the rest is made absent: blurred, masked or set to a baseline.",
  answer: () => "An answer is what the model says when it is asked: its score of the class with only a part of the input left.",
  gain: () => "The gain of a feature is what it adds to those taken before it, by the learned function f. Below 0, it speaks against the class.",
  unit: ({ gain_unit: unit }) => (unit === "log-odds"
    ? "Log-odds of a probability p are ln(p / (1 − p)): 0 is even, and one more multiplies the odds by 2.7."
    : "The unit of gains is that of the model's own output."),
  agreement: () => "Agreement is Spearman's rank correlation of two maps: 1 is the same order of features, 0 none, −1 the reverse.",
  checks: () => "Checks test the model and the members while SEA explains; where something looks wrong, they say what to do.",
};

function term(key, text = key) {
  const node = make("button", text, "term");
  node.type = "button";
  node.dataset.term = key;
  return node;
}

let explained = null;   // the term whose meaning is shown
function showTip(node) {
  if (explained) explained.removeAttribute("aria-describedby");
  explained = node;
  $("tip").hidden = !node;
  if (!node) return;
  $("tip").textContent = TERMS[node.dataset.term](current.group);
  node.setAttribute("aria-describedby", "tip");
  const place = node.getBoundingClientRect(), size = $("tip").getBoundingClientRect();
  const below = place.bottom + 6 + size.height <= innerHeight;
  $("tip").style.top = `${below ? place.bottom + 6 : Math.max(4, place.top - size.height - 6)}px`;
  $("tip").style.left = `${Math.max(8, Math.min(place.left, innerWidth - size.width - 8))}px`;
}
const termAt = (event) => (event.target.closest ? event.target.closest(".term") : null);
for (const kind of ["pointerover", "focusin", "click"]) addEventListener(kind, (event) => {
  if (termAt(event)) showTip(termAt(event));
  else if (kind === "click") showTip(null);
});
addEventListener("focusout", (event) => { if (termAt(event)) showTip(null); });
addEventListener("pointerout", (event) => { if (termAt(event) && termAt(event) !== document.activeElement) showTip(null); });
addEventListener("scroll", () => showTip(null), { passive: true });
addEventListener("keydown", (event) => { if (event.key === "Escape") showTip(null); });

// ---- zoom and swipe ----------------------------------------------------------------------

const ZOOMS = [1, 1.5, 2, 3, 4, 6, 8];
// Zoom; the point at (x, y), parts of the frame's sides, stays where it is.
function setZoom(zoom, x = 0.5, y = 0.5) {
  const frame = $("picture"), old = state.zoom;
  const left = (frame.scrollLeft + x * frame.clientWidth) / old, top = (frame.scrollTop + y * frame.clientHeight) / old;
  state.zoom = Math.max(1, Math.min(ZOOMS.at(-1), zoom));
  $("zoomed").style.width = $("zoomed").style.height = `${100 * state.zoom}%`;
  frame.classList.toggle("closer", state.zoom > 1);
  if (state.zoom > 1) frame.tabIndex = 0;
  else frame.removeAttribute("tabindex");
  frame.scrollLeft = left * state.zoom - x * frame.clientWidth;
  frame.scrollTop = top * state.zoom - y * frame.clientHeight;
  $("zoom-value").textContent = `${state.zoom}×`;
  $("zoom-out").disabled = state.zoom === 1;
  $("zoom-in").disabled = state.zoom === ZOOMS.at(-1);
}
const zoomBy = (step, x, y) => setZoom(ZOOMS[Math.max(0, Math.min(ZOOMS.length - 1, ZOOMS.indexOf(state.zoom) + step))], x, y);

$("zoom-in").addEventListener("click", () => zoomBy(1));
$("zoom-out").addEventListener("click", () => zoomBy(-1));
let dragged = 0;   // pixels since the mouse went down
$("zoomed").addEventListener("pointerdown", (event) => { dragged = 0; if (event.pointerType === "mouse") event.preventDefault(); });
$("zoomed").addEventListener("pointermove", (event) => {
  if (event.pointerType !== "mouse" || !event.buttons) return;
  dragged += Math.abs(event.movementX) + Math.abs(event.movementY);
  $("picture").scrollBy(-event.movementX, -event.movementY);
});
$("zoomed").addEventListener("click", (event) => {
  if (event.pointerType === "touch" || dragged > 4) return;   // a finger reads values; buttons zoom
  const frame = $("picture").getBoundingClientRect();
  const x = (event.clientX - frame.left) / frame.width, y = (event.clientY - frame.top) / frame.height;
  if (state.zoom === ZOOMS.at(-1) || event.shiftKey) setZoom(1);
  else zoomBy(2, x, y);
});

function setSwipe(part) {
  state.swipe = part;
  $("plain").hidden = !current.image || !part;
  $("plain").style.clipPath = `inset(0 ${100 - part}% 0 0)`;
  $("swipe").value = String(part);
  $("swipe-value").textContent = `${part} %`;
}
$("swipe").addEventListener("input", () => setSwipe(Number($("swipe").value)));

// ---- downloads ---------------------------------------------------------------------------

function save(ending, blob) {
  const link = make("a");
  const name = `${current.entry.number}_${current.entry.name}`.replace(/[^\p{L}\p{N}.-]+/gu, "_").slice(0, 80);
  link.href = URL.createObjectURL(blob);
  link.download = `sea_${name}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function drawMap() {
  const canvas = make("canvas"), context = canvas.getContext("2d"), heat = $("heat"), [h, w] = current.group.map;
  const lines = current.group.view === "lines", factor = Math.max(1, Math.round(768 / Math.max(h, w)));
  canvas.width = lines ? 1200 : w * factor;
  canvas.height = lines ? 120 * h : h * factor;
  context.imageSmoothingEnabled = !lines && Math.max(h, w) > 64;
  context.filter = $("image").style.filter || "none";
  if (current.image) context.drawImage($("image"), 0, 0, canvas.width, canvas.height);
  context.filter = "none";
  context.imageSmoothingEnabled = false;
  context.drawImage(heat, 0, 0, canvas.width, canvas.height);
  const grow = new DOMMatrix([canvas.width / current.group.shape.at(-1), 0, 0, canvas.height / h, 0, 0]);
  for (const path of lines ? document.querySelectorAll("#lines path") : []) {
    const scaled = new Path2D(), halo = path.classList.contains("halo");
    scaled.addPath(new Path2D(path.getAttribute("d")), grow);
    context.strokeStyle = halo ? "#fff" : "#16161a";
    context.lineWidth = halo ? 4 : 1.6;
    context.stroke(scaled);
  }
  return canvas;
}

// A cell of a table; a name that a spreadsheet would run as a formula starts with an apostrophe.
const cell = (text) => `"${String(text).replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
function writeOrder() {
  const { order, gains, group } = current;
  const rows = Array.from(order, (k, place) => `${place + 1},${k},${cell(nameFeature(k))},${Number(gains[place].toPrecision(group.gain_bits === 32 ? 7 : 3))}`);
  return [`rank,feature,name,${cell(group.gain_unit ? `gain in ${group.gain_unit}` : "gain")}`, ...rows, ""].join("\r\n");
}

function writeData() {
  const { entry, classes, order, gains, curve, sums, sides, agreement, checks, group } = current;
  const { methods, noun, n, shape, unit, gain_unit, provenance } = group;
  const about = { name: entry.name, class: entry.target, [unit]: entry.score, classes, features: { noun: noun[0], n, shape } };
  const found = { order: [...order], gains: [...gains], gain_unit, sums, for: sides[0], against: sides[1], curve, methods, agreement, checks: [...checks, ...group.checks] };
  return JSON.stringify({ ...about, ...found, provenance }, null, 1);
}

$("save-map").addEventListener("click", () => drawMap().toBlob((blob) => save("png", blob)));
$("save-order").addEventListener("click", () => save("csv", new Blob([writeOrder()], { type: "text/csv" })));
$("save-data").addEventListener("click", () => save("json", new Blob([writeData()], { type: "application/json" })));
