// Two explanations beside each other on one colour scale, and results of data sets.
Object.assign(window.sea, (() => {
  "use strict";
  const { page, make, draw } = window.sea;
  const sea = window.sea;

  // Two of this visit's explanations (or of their members): side by side, blinking, swiped.
  function compare(element) {
    const sides = ["a", "b"].map((name) => {
      const which = make("select", { id: `sea-${name}`, onchange: () => { chosen = true; fetchBoth(); } });
      const layer = make("select", { id: `sea-${name}-layer`, "aria-label": `Map of ${name.toUpperCase()}`, onchange: () => show() });
      const canvas = make("canvas", { role: "img", "aria-label": `Map ${name.toUpperCase()}` });
      const title = make("figcaption", {});
      return { name, which, layer, canvas, title, choice: make("label", { for: `sea-${name}` }, `${name.toUpperCase()} `, which, layer), figure: make("figure", {}, canvas, title) };
    });
    const modes = ["Side by side", "Blink", "Swipe"].map((word) => make("button", { type: "button", "aria-pressed": "false", onclick: () => setMode(word) }, word));
    const swipe = make("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": "How much of A is shown", oninput: () => place() });
    const other = make("button", { type: "button", onclick: () => { shown = 1 - shown; place(); } }, "Show the other");
    const frame = make("div", { class: "sea-compare" }, ...sides.map((side) => side.figure));
    const note = make("p", { class: "sea-note", role: "status" });
    const choices = make("div", { class: "sea-choices" }, ...sides.map((side) => side.choice)), buttons = make("div", { class: "sea-buttons" }, ...modes, other, swipe);
    element.replaceChildren(choices, buttons, frame, note);
    let states = null, mode = "Side by side", shown = 0, timer = null, asked = "", chosen = false, says = "";

    function setMode(word) {
      mode = word;
      clearInterval(timer);
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      if (mode === "Blink" && !still) timer = setInterval(() => { shown = 1 - shown; place(); }, 900);
      place();
    }
    function place() {
      modes.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === mode)));
      swipe.hidden = mode !== "Swipe"; other.hidden = mode !== "Blink";
      frame.dataset.mode = mode;
      frame.dataset.shown = mode === "Blink" ? "ab"[shown] : "";
      // A caption under two pictures in one place would be cut with them.
      note.textContent = mode === "Swipe" && states ? `On the left ${sides[0].title.textContent}; on the right ${sides[1].title.textContent}. ${says}` : says;
      sides[0].figure.style.clipPath = mode === "Swipe" ? `inset(0 ${100 - swipe.value}% 0 0)` : "";
      sides.forEach((side, i) => { side.figure.style.visibility = mode === "Blink" && i !== shown ? "hidden" : ""; });
    }
    async function fetchBoth() {
      const [a, b] = sides.map((side) => side.which.value);
      if (!a || !b) return;
      asked = `${a}\n${b}`;
      const reply = await sea.call("compare", { a, b });
      if (asked !== `${a}\n${b}`) return;
      if (!reply || reply.error) { note.textContent = reply?.error ?? "The server did not answer."; return; }
      states = [reply.a, reply.b];
      sides.forEach((side, i) => {
        const names = states[i].map.layers.map((one) => one.name), before = side.layer.selectedIndex;
        side.layer.replaceChildren(...names.map((name) => make("option", {}, name)));
        // Two maps of one explanation: SEA beside a member.
        side.layer.selectedIndex = before > 0 && before < names.length ? before : a === b && !chosen ? i : 0;
      });
      show();
    }
    function show() {
      if (!states) return;
      sides.forEach((side, i) => {
        const state = states[i], index = Math.max(0, side.layer.selectedIndex);
        sea.paint(state.map, index);
        const empty = state.map.layers[index].values.every((value) => !value);
        side.title.textContent = `${side.name.toUpperCase()}: ${side.layer.value} of ${state.name}${empty ? ", which is empty: nothing speaks for it" : ""}`;
        if (state.picture || state.values?.[0]?.length) sea.drawMap(side.canvas, state, index, null, 0.9);
        else side.title.append(listBest(state));
      });
      says = `One colour scale for both: multiples of each map's own mean. Rank correlation of the two maps: ${correlate()}.`;
      element.dataset.shown = sides.map((side) => side.which.value + side.layer.value).join("|");
      place();
    }
    const listBest = (state) => make("ol", {}, ...state.map.order.slice(0, 8).map((cell) => make("li", {}, state.map.names?.[cell] ?? `${cell + 1}`)));
    function correlate() {
      const [a, b] = states.map((state, i) => state.map.layers[Math.max(0, sides[i].layer.selectedIndex)].values);
      if (a.length !== b.length) return "none, as their sizes differ";
      const rank = (values) => {
        const order = [...values.keys()].sort((i, j) => values[i] - values[j]), ranks = new Float64Array(values.length);
        for (let i = 0; i < order.length;) {
          let j = i;
          while (j < order.length && values[order[j]] === values[order[i]]) j += 1;
          for (let k = i; k < j; k += 1) ranks[order[k]] = (i + j - 1) / 2;
          i = j;
        }
        return ranks;
      };
      const [x, y] = [rank(a), rank(b)], mean = (x.length - 1) / 2;
      let up = 0, sx = 0, sy = 0;
      for (let i = 0; i < x.length; i += 1) { up += (x[i] - mean) * (y[i] - mean); sx += (x[i] - mean) ** 2; sy += (y[i] - mean) ** 2; }
      return sx && sy ? (up / Math.sqrt(sx * sy)).toFixed(2) : "none, as one is the same everywhere";
    }
    let known = null;
    sea.add(() => {
      const kept = page.state?.kept ?? [];
      if (document.getElementById("view-1")?.hidden || kept.join("\n") === known) return;
      known = kept.join("\n");
      // The two newest, until the reader chooses.
      sides.forEach((side, i) => {
        const before = side.which.value, newest = kept[Math.min(i, kept.length - 1)] ?? "";
        side.which.replaceChildren(...kept.map((name) => make("option", { value: name }, name)));
        side.which.value = chosen && kept.includes(before) ? before : newest;
        if (!chosen) side.layer.selectedIndex = 0;
      });
      frame.hidden = choices.hidden = buttons.hidden = !kept.length;
      note.textContent = says = kept.length ? "" : "Explain something first: then inputs, classes, models and members of this visit can be compared here.";
      if (kept.length) fetchBoth();
    });
    place();
  }

  // Thumbnails of a run's results, and the one that was opened.
  function gallery(element, props, trigger, watch) {
    const count = make("p", { class: "sea-note", role: "status" });
    const grid = make("div", { class: "sea-grid", role: "group", "aria-label": "Explained inputs" });
    const turn = (step, word) => make("button", { type: "button", onclick: () => trigger("turn", { page: (props.value?.page ?? 0) + step }) }, word);
    const back = turn(-1, "Earlier"), on = turn(1, "Later"), pages = make("div", { class: "sea-buttons" }, back, on);
    element.replaceChildren(count, grid, pages);
    const fill = () => {
      const value = props.value ?? {};
      if (!value.items) return;
      count.textContent = `${value.count.toLocaleString("en")} shown; ${value.done.toLocaleString("en")} of ${value.of.toLocaleString("en")} inputs explained. Page ${value.page + 1} of ${value.pages}.`;
      back.disabled = value.page === 0; on.disabled = value.page >= value.pages - 1;
      pages.hidden = value.pages < 2;
      grid.replaceChildren(...value.items.map((item) => make("button", { type: "button", class: "sea-item", "data-wrong": String(item.correct === false), onclick: () => trigger("open", { id: item.id }) },
        item.url ? make("img", { src: item.url, alt: "" }) : make("span", { class: "sea-broken" }, "no map"),
        make("b", {}, item.error ? "error" : `${item.label} ${item.score === null ? "" : item.score.toFixed(2).replace(/^0/, "")}`),
        make("span", {}, item.error ?? [item.correct === false ? "wrong" : null, item.agreement === null ? null : `agree ${item.agreement.toFixed(2)}`, item.failed ? `${sea.plural(item.failed, "check")} failed` : null].filter(Boolean).join(", ")),
        make("span", { class: "sea-id" }, item.id))));
      element.dataset.count = String(value.items.length);
    };
    watch("value", fill);
    fill();
  }

  function opened(element, props, trigger, watch) {
    let shown = null;
    const fill = () => {
      const one = props.value ?? {}, card = document.getElementById("opened-card");
      element.dataset.id = one.id ?? "";
      if (card) card.hidden = !one.id;
      if (!one.id) { element.replaceChildren(); return; }
      const parts = [make("h2", { class: "sea-title", tabindex: -1 }, one.id)];
      if (one.error) parts.push(make("p", { class: "sea-problem" }, one.error));
      else {
        const figures = (one.map?.layers ?? []).map((layer, index) => {
          const canvas = make("canvas", { role: "img", "aria-label": `Map of ${layer.name}` });
          sea.drawMap(canvas, one, index, null, 0.9);
          return make("figure", {}, canvas, make("figcaption", {}, make("b", {}, layer.name)));
        });
        const agree = one.agreement === null ? "" : ` Agreement of the members: ${one.agreement.toFixed(2)}.`;
        parts.push(make("p", {}, `The model says ${one.label}${one.score === null ? "" : `, ${one.score.toFixed(2)}`}${one.correct === false ? `, which is wrong${one.truth ? `: it is ${one.truth}` : ""}` : ""}.${agree}`));
        const drawn = one.figure ? make("img", { src: one.figure, alt: "The map" }) : make("div", { class: "sea-members" }, ...figures);
        parts.push(make("div", { class: "sea-opened" }, drawn, one.keep?.length ? curve(one) : null));
      }
      parts.push(make("ul", { class: "sea-checks" }, ...(one.checks ?? []).map((text) => make("li", { "data-level": "fail" }, make("span", { class: "sea-level" }, "failed"), make("span", {}, text)))));
      if (one.asks) parts.push(make("div", { class: "sea-buttons" }, make("button", { type: "button", id: "sea-ask", onclick: () => { sea.openView(0); trigger("ask", { id: one.id }); } }, "Ask the model about it")));
      element.replaceChildren(...parts);
      if (one.id !== shown) { shown = one.id; card.scrollIntoView({ block: "nearest" }); parts[0].focus({ preventScroll: true }); }
    };
    function curve(one) {
      const x = (i) => 34 + (316 * i) / (one.keep.length - 1), y = (v) => 122 - 112 * v;
      const path = (values) => values.map((v, i) => `${i ? "L" : "M"}${x(i)},${y(v)}`).join("");
      return draw("svg", { viewBox: "0 0 360 150", class: "sea-curve", role: "img", "aria-label": "Probability along the order: kept and removed" },
        ...[0, 0.5, 1].flatMap((v) => [draw("line", { x1: 34, x2: 350, y1: y(v), y2: y(v), class: "rule" }), draw("text", { x: 29, y: y(v) + 4, "text-anchor": "end", class: "tick" }, v.toFixed(2).replace(/^0/, ""))]),
        draw("path", { d: path(one.keep), class: "curve only" }), draw("path", { d: path(one.remove), class: "curve removed" }),
        draw("text", { x: 192, y: 140, "text-anchor": "middle", class: "tick" }, "best features: only these left (solid), removed (dashed)"));
    }
    watch("value", fill);
    fill();
  }

  return { compare, gallery, opened };
})());
