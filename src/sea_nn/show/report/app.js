// The gallery, the controls, and the start.

async function show(number) {
  const request = ++wanted;
  let data;
  try {
    data = await openInput(number);
  } catch (error) {
    $("notice").hidden = false;
    $("notice").textContent = typeof DecompressionStream === "undefined"
      ? "This browser is too old to open the report: any browser of 2023 or later can."
      : `Input ${number} could not be read: ${error.message}`;
    return;
  }
  if (request !== wanted) return;
  $("notice").hidden = true;
  current = data;
  state.input = number;
  showStage();
  showClasses();
  showMaps();
  showScale();
  showLines();
  showGains();
  showCurve();
  setP(state.p);
  showAgreement();
  showChecks();
  showProvenance();
  markPlace();
  $("viewer").dataset.ready = String(number);
}

// ---- the gallery -------------------------------------------------------------------------

const links = inputs.map((entry) => {
  const item = make("li"), link = make("a"), text = make("span");
  link.href = `#${entry.number}`;
  text.append(make("b", entry.name), make("small", entry.written));
  link.append(make("canvas", undefined, "thumb"), text);
  item.append(link);
  item.dataset.number = entry.number;
  return item;
});

const watcher = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    drawThumb(Number(target.dataset.number), target.querySelector("canvas")).catch(() => {});
  }
}, { rootMargin: "150px" });

async function drawThumb(number, canvas) {
  const data = await openInput(number);
  if (!data.planes) { canvas.hidden = true; canvas.parentElement.style.gridTemplateColumns = "1fr"; return; }
  const heat = make("canvas"), context = canvas.getContext("2d");
  paint(heat, data.planes[0], data.group.map, data.image ? 0.65 : 1, null);
  canvas.width = canvas.height = 152;
  context.imageSmoothingEnabled = data.group.map[0] > 152;
  if (data.image) {
    const picture = new Image();
    picture.src = data.image;
    await picture.decode();
    context.filter = "grayscale(1)";
    cover(context, picture, picture.naturalWidth, picture.naturalHeight);
    context.filter = "none";
  }
  if (data.group.view === "lines") context.drawImage(heat, 0, 0, 152, 152);
  else cover(context, heat, heat.width, heat.height);
}

// Fill the square with the middle of the picture.
function cover(context, picture, width, height) {
  const side = Math.min(width, height);
  context.drawImage(picture, (width - side) / 2, (height - side) / 2, side, side, 0, 0, 152, 152);
}

function arrange() {
  const words = $("filter").value.trim().toLowerCase(), by = $("sort").value;
  const low = (v) => (v === null ? Infinity : v);
  const rules = {
    given: (a, b) => a.number - b.number,
    agreement: (a, b) => low(a.agreement) - low(b.agreement) || a.number - b.number,
    score: (a, b) => low(a.score) - low(b.score) || a.number - b.number,
    name: (a, b) => a.name.localeCompare(b.name) || a.number - b.number,
  };
  shown = inputs.filter((entry) => entry.name.toLowerCase().includes(words)).sort(rules[by]);
  $("list").replaceChildren(...shown.map((entry) => links[entry.number]));
  $("found").textContent = words ? `${count(shown.length)} of ${count(inputs.length)} inputs` : `${count(inputs.length)} inputs`;
  markPlace();
}

function markPlace() {
  if (state.input === null) return;
  const place = shown.findIndex((entry) => entry.number === state.input);
  $("place").textContent = place < 0 ? "not in the list" : `${count(place + 1)} of ${count(shown.length)}`;
  $("previous").disabled = place <= 0;
  $("next").disabled = shown.length === 0 || place === shown.length - 1;
  links.forEach((item, number) => {
    const link = item.firstChild, here = number === state.input;
    if (!here) { link.removeAttribute("aria-current"); return; }
    link.setAttribute("aria-current", "true");
    // Scroll the list alone: scrollIntoView would move the page as well.
    const list = $("list"), frame = list.getBoundingClientRect(), own = item.getBoundingClientRect();
    if (own.top < frame.top || own.bottom > frame.bottom) list.scrollTop += own.top - frame.top - frame.height / 3;
    if (own.left < frame.left || own.right > frame.right) list.scrollLeft += own.left - frame.left - frame.width / 3;
  });
}

function step(by) {
  const place = shown.findIndex((entry) => entry.number === state.input);
  const next = shown[place < 0 ? 0 : place + by];
  if (!next) return;
  const inList = $("list").contains(document.activeElement);
  location.hash = String(next.number);
  if (inList) links[next.number].firstChild.focus({ preventScroll: true });
}

const fromAddress = () => {
  const number = Number(location.hash.slice(1) || (shown[0] || inputs[0]).number);
  return Number.isInteger(number) && number >= 0 && number < inputs.length ? number : 0;
};

// ---- controls ----------------------------------------------------------------------------

$("maps").addEventListener("change", (event) => {
  state.map = Number(event.target.value);
  showScale();
  showHeat();
});
$("opacity").addEventListener("input", () => {
  state.opacity = Number($("opacity").value) / 100;
  showHeat();
});
$("p").addEventListener("input", () => {
  const k = Number($("p").value);
  setP(k ? current.group.stops[k - 1] : 0);
});
$("p-exact").addEventListener("change", () => setP(Number($("p-exact").value)));
$("controls").addEventListener("submit", (event) => event.preventDefault());
$("previous").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
$("filter").addEventListener("input", arrange);
$("sort").addEventListener("change", arrange);
addEventListener("resize", hintSideways);
addEventListener("hashchange", () => { if (/^#\d*$/.test(location.hash)) show(fromAddress()); });

$("heat").addEventListener("pointermove", (event) => {
  if (!current || !current.planes) return;
  const frame = $("heat").getBoundingClientRect(), { group, rank, featureOf, planes } = current;
  const [h, w] = group.map;
  const y = Math.min(h - 1, Math.floor(h * (event.clientY - frame.top) / frame.height));
  const x = Math.min(w - 1, Math.floor(w * (event.clientX - frame.left) / frame.width));
  if (x < 0 || y < 0) return;
  const k = y * w + x, t = planes[state.map][k] / 255;
  const spread = state.map === planes.length - 1;
  const value = spread ? `spread ${(0.5 * t).toFixed(2)}`
    : t === 1 ? `${palette.limit}× the mean or more` : `${(palette.limit * t * t).toPrecision(2)}× the mean`;
  const place = rank[featureOf[k]], gain = group.gain_unit ? ` (${amount(current.gains[place])} ${group.gain_unit})` : "";
  $("readout").textContent = `${sayWhere(x, y)}: ${spoken(current.layers[state.map])} ${value}; SEA took this ${group.noun[0]} ${ordinal(place + 1)}${gain}`;
});

// Where a drawn pixel is in the input.
function sayWhere(x, y) {
  const { group, slices } = current, [rows, columns] = group.tiles, [H, W] = group.shape.slice(-2);
  const [h, w] = [group.map[0] / rows, group.map[1] / columns];
  if (group.view === "lines") return `channel ${y}, step ${Math.floor(x * W / w)}`;
  const place = `row ${Math.floor((y % h) * H / h)}, column ${Math.floor((x % w) * W / w)}`;
  return slices ? `slice ${slices[Math.floor(y / h) * columns + Math.floor(x / w)]}, ${place}` : place;
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !current) return;
  const at = document.activeElement;
  if (at.matches("input[type=search], input[type=number], select")) return;
  const sliding = at.matches("input[type=range], input[type=radio]") || at.closest(".scroll, .closer");
  const inList = $("list").contains(at);
  const { key } = event;
  if (key === "j" || (!sliding && key === "ArrowRight") || (inList && key === "ArrowDown")) step(1);
  else if (key === "k" || (!sliding && key === "ArrowLeft") || (inList && key === "ArrowUp")) step(-1);
  else if (current.planes && (key === "+" || key === "=")) zoomBy(1);
  else if (current.planes && key === "-") zoomBy(-1);
  else if (current.planes && key === "0") setZoom(1);
  else if (/^[1-9]$/.test(key) && current.layers[key - 1]) {
    document.querySelector(`#maps input[value="${key - 1}"]`).click();
  } else return;
  event.preventDefault();
});

// ---- start -------------------------------------------------------------------------------

const first = read("group-0");
const about = [`${count(inputs.length)} ${inputs.length === 1 ? "input" : "inputs"}`, first.provenance.model,
  `SEA over ${first.methods.map(spoken).join(", ")}`, (first.provenance.created || "").slice(0, 10)];
$("about").textContent = about.filter(Boolean).join(" · ");
$("about-agreement").append(term("agreement", "Agreement"), " of two maps, from −1 to 1, by Spearman's rank correlation.");
$("about-checks").append(term("checks", "What are checks?"));
const many = inputs.length > 1;
$("layout").classList.toggle("many", many);
$("gallery").hidden = $("pager").hidden = !many;
$("tools").hidden = inputs.length < TOOLS_FROM;
const strip = $("scale").getContext("2d"), row = strip.createImageData(256, 1);
for (let t = 0; t < 256; t++) row.data.set([...colours.subarray(3 * t, 3 * t + 3), 255], 4 * t);
strip.putImageData(row, 0, 0);
$("scale").style.background = `rgb(${colours.subarray(-3)})`;   // of the arrow
if (many) {
  arrange();
  links.forEach((item) => watcher.observe(item));
}
show(fromAddress());
