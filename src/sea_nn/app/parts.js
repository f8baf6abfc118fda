// The parts of the page that show the store of page.js: picker, classes, stage, evidence.
Object.assign(window.sea, (() => {
  "use strict";
  const { page, make, draw, write, plural, noun, bars } = window.sea;
  const sea = window.sea;

  // Inputs to choose from, and one's own: dropped, pasted, chosen or typed; and the models.
  function picker(element, props, trigger, watch) {
    const limit = 10 * 2 ** 20;
    const say = make("p", { class: "sea-note", role: "status" });
    const file = make("input", { type: "file", class: "sea-file", id: "sea-file", onchange: () => send(file.files[0]) });
    const own = make("label", { class: "sea-own", for: "sea-file" }, make("strong", {}, "Your own"), make("span", {}, "drop, paste or choose"));
    const typed = make("textarea", { id: "sea-typed", rows: 2, "aria-label": "Your own text", placeholder: "Your own text" });
    const go = make("button", { type: "button", onclick: () => send(new File([typed.value], "text.txt")) }, "Explain");
    const typing = make("div", { class: "sea-typing" }, typed, go);
    const list = make("div", { class: "sea-thumbs", role: "group", "aria-label": "Examples" });
    const model = make("select", { id: "sea-model", onchange: () => sea.go(trigger, "switch", { index: model.selectedIndex }) });
    const models = make("label", { for: "sea-model", class: "sea-models" }, "Model ", model);
    element.replaceChildren(models, make("div", { class: "sea-picker" }, make("div", { class: "sea-choice" }, file, own), typing, list), say);

    function send(chosen) {
      if (!chosen) return;
      if (chosen.size > limit) { say.textContent = `${chosen.name} has ${(chosen.size / 2 ** 20).toFixed(0)} MB; at most 10 are read.`; return; }
      say.textContent = "";
      const reader = new FileReader();
      reader.onload = () => sea.go(trigger, "upload", { name: chosen.name, data: reader.result.split(",")[1] ?? "" });
      reader.readAsDataURL(chosen);
      file.value = "";
    }
    document.addEventListener("paste", (event) => {
      const pasted = [...(event.clipboardData?.files ?? [])][0];
      if (pasted) { event.preventDefault(); send(pasted); }
    });
    document.addEventListener("dragover", (event) => { event.preventDefault(); own.classList.add("over"); });
    document.addEventListener("dragleave", () => own.classList.remove("over"));
    document.addEventListener("drop", (event) => { event.preventDefault(); own.classList.remove("over"); send(event.dataTransfer?.files[0]); });

    const fill = () => {
      const value = props.value ?? {};
      page.labels = value.labels ?? [];
      typing.hidden = value.kind !== "text"; own.parentNode.hidden = value.kind === "text";
      model.replaceChildren(...(value.models ?? []).map((name) => make("option", { selected: name === value.model }, name)));
      model.disabled = (value.models ?? []).length < 2;
      sea.keepFocus(list, () => list.replaceChildren(...(value.examples ?? []).map((example, i) => make("button", {
        type: "button", class: "sea-thumb", "aria-label": `Explain ${example.name}`, title: example.name,
        onclick: () => sea.go(trigger, "choose", { index: i }),
      }, example.url ? make("img", { src: example.url, alt: "" }) : make("span", {}, example.name)))));
      sea.refresh();
    };
    const mark = () => [...list.children].forEach((button) => button.setAttribute("aria-pressed", String(button.title === page.state?.input)));
    watch("value", fill);
    fill();
    sea.add(mark);
  }

  // The top five classes. One click asks why; "not" on another one asks why the first and not that.
  function classes(element, trigger) {
    const body = make("div", {});
    const names = make("datalist", { id: "sea-names" });
    const other = make("input", { type: "text", id: "sea-other", list: "sea-names", autocomplete: "off", placeholder: "name of a class" });
    const take = () => {
      const target = page.labels.indexOf(other.value.trim());
      problem.textContent = target < 0 && other.value ? `There is no class named "${other.value}".` : "";
      if (target >= 0) { other.value = ""; sea.go(trigger, "why", { target, versus: null }); }
    };
    other.onchange = take;
    // While suggestions are shown, the Enter key closes them and is no change yet.
    other.onkeydown = (event) => { if (event.key === "Enter") take(); };
    const problem = make("p", { class: "sea-problem", role: "status" });
    const more = make("div", { class: "sea-more" }, make("label", { for: "sea-other" }, "Another class"), other, names, problem);
    const hint = make("p", { class: "sea-note" });
    element.replaceChildren(body, hint, more);
    let shown = null, listed = null;
    sea.add(() => {
      more.hidden = (page.labels ?? []).length <= 5;
      if (page.labels === listed) return;
      listed = page.labels;
      names.replaceChildren(...(listed ?? []).map((label) => make("option", { value: label })));
    });
    sea.add(() => {
      const state = page.state;
      const mark = JSON.stringify([state?.top, state?.target, state?.input]);
      if (mark === shown) return;
      shown = mark;
      if (!state?.top) { body.replaceChildren(); hint.textContent = "Choose an input above."; return; }
      const [why, not] = Array.isArray(state.target) ? state.target : [state.target, null];
      const ask = (target, versus = null) => sea.go(trigger, "why", { target, versus });
      const rows = state.top.some(([target]) => target === why) ? state.top : [...state.top, [why, page.labels?.[why] ?? `class ${why}`, state.chosen]];
      const list = bars(rows, (target) => ask(target), why, not);
      rows.forEach(([target, label], i) => {
        if (target === why || state.top.length < 2 || state.unit === "value") return;
        const off = target === not;
        list.children[i].append(make("button", {
          type: "button", class: "sea-not", "aria-pressed": String(off), "aria-label": `Why not ${label}?`,
          title: off ? "Ask about the first class alone" : `Why the chosen class and not ${label}?`,
          onclick: () => ask(why, off ? null : target),
        }, "not"));
      });
      hint.textContent = not === null || state.top.length < 2 ? (state.top.length > 1 && state.unit !== "value" ? "A click asks why. “not” asks why the chosen one and not that." : "")
        : `Why ${state.label}? Shares are of these two alone.`;
      sea.keepFocus(body, () => body.replaceChildren(list));
    });
  }

  // The picture with the map over it; its cells can be removed or kept.
  function stage(element, props, watch, server) {
    sea.connect(server);
    const canvas = make("canvas", { role: "img", "aria-label": "The input, with the map over it" });
    const cells = make("div", { class: "sea-cells", role: "group", "aria-label": "Cells: arrow keys move, space marks" });
    const read = make("p", { class: "sea-read" });
    const hint = () => `Point at one of the ${noun()} to read its rank and what it adds.${page.state.map.against?.some(Boolean) ? " Striped ones speak against the class." : ""}`;
    const reads = (cell) => ({ onmouseenter: () => { read.textContent = sea.describe(cell); }, onfocus: () => { read.textContent = sea.describe(cell); } });
    const layer = make("select", { id: "sea-layer", onchange: () => { page.layer = layer.selectedIndex; sea.refresh(); } });
    const strength = make("input", { type: "range", id: "sea-strength", min: 0, max: 100, value: 80, oninput: () => { page.strength = strength.value / 100; sea.refresh(); } });
    const frame = make("div", { class: "sea-frame" }, canvas, cells);
    const list = make("div", { class: "sea-list", role: "group", "aria-label": "Features, the best first" });
    const ramp = make("canvas", { width: 256, height: 1, role: "img", "aria-label": "Colour scale from 0 to ten times the map's own mean" });
    const tools = make("div", { class: "sea-tools" },
      make("span", { class: "sea-ramp" }, "0", ramp, "10× the mean"),
      make("label", { for: "sea-layer" }, "Map of ", layer), make("label", { for: "sea-strength" }, "Strength ", strength));
    element.replaceChildren(frame, list, read, tools);
    let shown = null;

    cells.addEventListener("keydown", (event) => {
      const columns = page.state?.map?.grid?.[1];
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
      if (!step) return;
      const next = cells.children[[...cells.children].indexOf(document.activeElement) + step];
      if (next) { event.preventDefault(); next.focus(); }
    });

    function fit() {
      const map = page.state?.map, grid = map?.grid && !["table", "text"].includes(page.state.kind) ? map.grid : null;
      const count = grid ? grid[0] * grid[1] : 0;
      if (cells.childElementCount !== count || cells.dataset.grid !== String(grid)) {
        cells.dataset.grid = String(grid);
        cells.style.gridTemplate = grid ? `${sea.tracks(0)} / ${sea.tracks(1)}` : "";
        cells.replaceChildren(...Array.from({ length: count }, (_, cell) => make("button", {
          type: "button", class: "sea-cell", tabindex: cell ? -1 : 0, ...sea.brushable(cell), ...reads(cell),
        })));
      }
      const gone = page.marked.size ? sea.removedCells() : new Set();
      [...cells.children].forEach((button, cell) => {
        button.setAttribute("aria-label", sea.describe(cell));
        button.setAttribute("aria-pressed", String(page.marked.has(cell)));
        button.classList.toggle("gone", gone.has(cell));
      });
    }

    // A text's words, marked by what they add.
    function fillText() {
      const { map } = page.state, most = Math.max(...map.gains.map(Math.abs)) || 1, lit = sea.best();
      const gone = page.marked.size ? sea.removedCells() : new Set();
      list.replaceChildren(...map.names.map((word, cell) => {
        const gain = Math.max(0, map.gains[map.order.indexOf(cell)]) - (map.against?.[cell] ?? 0), share = Math.min(1, Math.abs(gain) / most);
        return make("button", {
          type: "button", class: `sea-word${gain < 0 ? " against" : ""}${lit.has(cell) ? " lit" : ""}${gone.has(cell) ? " gone" : ""}`, style: `--share:${Math.round(70 * Math.sqrt(share))}%`,
          "aria-pressed": String(page.marked.has(cell)), "aria-label": sea.describe(cell), onclick: () => sea.mark(cell), ...reads(cell),
        }, word.trim() || word);
      }));
    }

    const bar = (gain, most, side = "") => make("span", { class: `sea-bar${side}`, style: `width:${(100 * Math.max(0, gain)) / most}%` });

    // Features without a place: a bar each, the best first.
    function fillList() {
      const { map, values } = page.state, most = Math.max(...map.order.map((cell, rank) => Math.max(0, map.gains[rank]) + (map.against?.[cell] ?? 0))) || 1, lit = sea.best();
      const gone = page.marked.size ? sea.removedCells() : new Set();
      list.replaceChildren(...map.order.map((cell, rank) => make("button", {
        type: "button", class: `sea-feature${lit.has(cell) ? " lit" : ""}${gone.has(cell) ? " gone" : ""}`, "aria-pressed": String(page.marked.has(cell)),
        "aria-label": sea.describe(cell), onclick: () => sea.mark(cell), ...reads(cell),
      }, make("span", { class: "sea-name" }, map.names?.[cell] ?? `${noun(1)} ${cell + 1}`),
      make("span", { class: "sea-value" }, values && map.names ? Number(Number(values[cell]).toPrecision(4)).toString() : ""),
      make("span", { class: "sea-track" }, bar(map.gains[rank], most), map.against?.[cell] ? bar(map.against[cell], most, " against") : null))));
    }

    sea.add(() => {
      const state = page.state, drawn = state?.picture || state?.kind === "series";
      frame.hidden = !drawn; const listed = ["table", "text"].includes(state?.kind);
      if (!state?.top) read.textContent = "Choose an example above, or bring your own: the map appears here.";
      else if (!state.map) read.textContent = "";
      else if (state.map !== shown) {
        const at = [...cells.children].findIndex((one) => one.matches(":hover, :focus"));
        read.textContent = at < 0 ? hint() : sea.describe(at);
      }
      shown = state?.map;
      tools.hidden = !state?.map || listed; list.hidden = !listed || !state?.map;
      list.classList.toggle("words", state?.kind === "text");
      if (!state?.top) return;
      element.dataset.ready = state.map ? String(state.map.spent) : "";
      const names = (state.map?.layers ?? []).map((one) => one.name);
      if (names.join() !== [...layer.options].map((o) => o.value).join()) {
        layer.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
      }
      layer.selectedIndex = Math.min(page.layer, names.length - 1);
      if (state.map && !ramp.dataset.drawn) {
        const colours = sea.decode(state.map.colours), context = ramp.getContext("2d"), image = context.createImageData(256, 1);
        for (let i = 0; i < 256; i += 1) image.data.set([...colours.subarray(3 * i, 3 * i + 3), 255], 4 * i);
        context.putImageData(image, 0, 0);
        ramp.dataset.drawn = "yes";
      }
      if (listed && state.map) sea.keepFocus(list, state.kind === "text" ? fillText : fillList);
      fit();
      if (drawn) {
        const own = state;
        sea.drawMap(make("canvas"), state, page.layer, state.map ? sea.best() : null).then((context) => {
          if (own !== page.state) return;
          canvas.width = context.canvas.width; canvas.height = context.canvas.height;
          canvas.getContext("2d").drawImage(context.canvas, 0, 0);
        });
      }
    });
    watch("value", () => sea.show(props.value));
    sea.show(props.value);
  }

  // What the model itself says of the best p: the slider, two pictures, three numbers, one curve.
  function evidence(element) {
    const slider = make("input", { type: "range", id: "sea-p", min: 0, max: 64, value: 8, oninput: () => sea.setP(Number(slider.value)) });
    const title = make("label", { for: "sea-p", class: "sea-sentence" });
    const only = make("canvas", { role: "img", "aria-label": "Only these left" });
    const gone = make("canvas", { role: "img", "aria-label": "These removed" });
    const onlySays = make("b", { id: "sea-only" }), goneSays = make("b", { id: "sea-removed" }), predicts = make("b", { id: "sea-predicted" });
    const error = make("span", {});
    const pair = make("div", { class: "sea-pair" },
      make("figure", {}, only, make("figcaption", {}, make("span", { class: "dot only" }), "only these left ", onlySays)),
      make("figure", {}, gone, make("figcaption", {}, make("span", { class: "dot removed" }), "these removed ", goneSays)));
    const line = make("p", { class: "sea-predicts" }, make("span", { class: "dash" }), "f predicts ", predicts, error);
    const curve = draw("svg", { viewBox: "0 0 360 150", class: "sea-curve", role: "img" });
    const body = make("div", { class: "sea-evidence" }, title, slider, pair, line, curve);
    const wait = make("p", { class: "sea-note" }, "As soon as there is a map, the model is asked about its best cells.");
    element.replaceChildren(wait, body);
    sea.add(() => {
      const map = page.state?.map;
      body.hidden = !map; wait.hidden = Boolean(map);
      if (!map) return;
      slider.max = map.n; slider.value = page.p;
      slider.setAttribute("aria-valuetext", `${page.p} of ${map.n}`);
      title.replaceChildren("The best ", make("b", {}, String(page.p)), ` of ${map.n} ${noun(map.n)} for `, make("b", {}, page.state.label));
      const point = sea.measured();
      onlySays.textContent = write(point?.[1]); goneSays.textContent = write(point?.[2]); predicts.textContent = write(map.line[page.p]);
      error.textContent = map.error === null ? "" : ` ± ${write(map.error)}`;
      body.dataset.measured = point ? String(page.p) : "";
      pair.classList.toggle("bare", ["table", "text"].includes(page.state.kind));
      if (page.state.picture || page.state.kind === "series") {
        const lit = sea.best(), rest = new Set(map.order.slice(page.p));
        sea.drawInput(only, page.state, lit);
        sea.drawInput(gone, page.state, rest);
      }
      drawCurve(curve, map);
    });
  }

  function drawCurve(svg, map) {
    const left = sea.isShare() ? 34 : 48, right = 350, top = 10, bottom = 122;
    const values = [...map.line, ...map.measured.flatMap((m) => [m[1], m[2]]), page.state.whole];
    let [low, high] = sea.isShare() ? [0, 1] : [Math.min(...values), Math.max(...values)];
    if (high === low) high = low + 1;
    const x = (p) => left + ((right - left) * p) / map.n;
    const y = (v) => bottom - ((bottom - top) * (v - low)) / (high - low);
    const text = (where, content, anchor) => draw("text", { x: where[0], y: where[1], "text-anchor": anchor, class: "tick" }, content);
    const points = [...map.measured].sort((a, b) => a[0] - b[0]);
    const path = (index) => points.map((m, i) => `${i ? "L" : "M"}${x(m[0])},${y(m[index])}`).join("");
    svg.setAttribute("aria-label", `f's prediction by p, and the model's answers at ${plural(points.length, "point")}`);
    svg.replaceChildren(
      ...[low, (low + high) / 2, high].flatMap((v) => [
        draw("line", { x1: left, x2: right, y1: y(v), y2: y(v), class: "rule" }), text([left - 5, y(v) + 4], sea.isShare() ? write(v) : Number(v.toPrecision(3)), "end")]),
      draw("line", { x1: x(page.p), x2: x(page.p), y1: top, y2: bottom, class: "marker" }),
      draw("path", { d: path(2), class: "curve removed" }),
      draw("path", { d: map.line.map((v, p) => `${p ? "L" : "M"}${x(p)},${y(v)}`).join(""), class: "curve predicted" }),
      ...points.flatMap((m) => [
        draw("circle", { cx: x(m[0]), cy: y(m[2]), r: 3.4, class: "point removed" }, draw("title", {}, `${m[0]} removed: ${write(m[2])}`)),
        draw("circle", { cx: x(m[0]), cy: y(m[1]), r: 3.4, class: "point only" }, draw("title", {}, `only ${m[0]} left: ${write(m[1])}`))]),
      text([left, 140], "0", "start"), text([right, 140], String(map.n), "end"), text([(left + right) / 2, 140], `best ${noun()}`, "middle"));
  }

  // Cells that the reader removed or kept, and what the model then says.
  function trial(element) {
    const how = ["remove", "keep"].map((word) => make("button", {
      type: "button", "aria-pressed": "false", onclick: () => { page.keep = word === "keep"; sea.refresh(); sea.tryOut(); },
    }, word === "keep" ? "Keep only them" : "Remove them"));
    const reset = make("button", { type: "button", onclick: sea.clear }, "Clear");
    const says = make("div", { role: "status" });
    const buttons = make("div", { class: "sea-buttons" }, ...how, reset);
    element.replaceChildren(buttons, says);
    sea.add(() => {
      buttons.hidden = !page.state?.map;
      how.forEach((button, i) => button.setAttribute("aria-pressed", String(page.keep === Boolean(i))));
      const count = page.marked.size;
      reset.hidden = !count;
      element.dataset.count = page.said ? String(count) : "";
      if (!page.state?.map || !count) {
        const how = ["image", "series"].includes(page.state?.kind) ? `Click ${noun()}, or brush over them` : `Click ${noun()}`;
        says.replaceChildren(make("p", { class: "sea-note" }, page.state?.map ? `${how}: the model is asked again.` : "As soon as there is a map, parts of the input can be removed."));
        return;
      }
      const words = page.keep ? `With only ${count} ${noun(count)} left` : `Without ${count} ${noun(count)}`;
      says.replaceChildren(make("p", { class: "sea-sentence" }, page.said ? `${words} the model says` : `${words} …`),
        ...(page.said?.error ? [make("p", { class: "sea-note" }, page.said.error)] : page.said ? [bars(page.said.top)] : []));
    });
  }

  return { picker, classes, stage, evidence, trial };
})());
