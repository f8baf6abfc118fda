// Parts around the stage: progress, members and their agreement, checks, files to take away.
Object.assign(window.sea, (() => {
  "use strict";
  const { page, make, plural } = window.sea;
  const sea = window.sea;

  function progress(element, props, watch) {
    const bar = make("progress", { max: 1, value: 0, "aria-label": "Model evaluations" });
    const text = make("span", { id: "sea-progress-text" });
    const stop = make("button", { type: "button", id: "sea-stop", class: "quiet", onclick: () => sea.stop() }, "Stop");
    const line = make("div", { class: "sea-progress" }, bar, text, stop);
    const problem = make("p", { class: "sea-problem", role: "alert", hidden: true });
    element.replaceChildren(line, problem);
    const fill = () => {
      const value = props.value ?? {};
      if (sea.isOld(value)) return;
      page.running = Boolean(value.running);
      element.dataset.running = String(page.running);
      bar.max = value.total || 1; bar.value = value.done || 0;
      bar.hidden = stop.hidden = !value.running;
      problem.textContent = value.error ?? ""; problem.hidden = !value.error;
      if (value.running) {
        const left = value.left === null || value.left === undefined ? "" : `, about ${Math.max(1, Math.round(value.left))} s left`;
        text.textContent = `${value.done} of ${value.total} evaluations${left}`;
      } else {
        const spent = page.state?.map?.spent;
        const before = page.state?.map?.reused ? `; ${page.state.map.reused} paid for before` : "";
        text.textContent = spent ? `Map of ${plural(spent, "evaluation")}${before}` : "";
      }
    };
    watch("value", fill);
    sea.add(fill);
  }

  // The three features that a layer puts first, where it has no picture.
  function firstNames(map, index) {
    const values = sea.decode(map.layers[index].data);
    return [...values.keys()].filter((cell) => values[cell]).sort((a, b) => values[b] - values[a]).slice(0, 3).map((cell) => (map.names?.[cell] ?? `${cell + 1}`).trim());
  }

  // The members' maps on SEA's colour scale, and how far they agree with it.
  function members(element) {
    let shown = null;
    sea.add(() => {
      const state = page.state, map = state?.map;
      if (map === shown) return;
      shown = map;
      if (!map?.agreement) { element.replaceChildren(make("p", { class: "sea-note" }, "They appear with the map.")); return; }
      const figures = map.layers.map((layer, index) => {
        const rank = map.agreement[index];
        const canvas = make("canvas", { role: "img", "aria-label": `Map of ${layer.name}` });
        if (state.picture || state.kind === "series") sea.drawMap(canvas, state, index, null, 0.9);
        else canvas.hidden = true;
        const first = canvas.hidden ? ` ${firstNames(map, index).join(", ")}` : "";
        const words = index === 0 || rank === undefined ? "" : rank === null ? "no agreement to measure" : `agrees ${rank.toFixed(2)}`;
        return make("figure", {}, canvas, make("figcaption", {}, make("b", {}, layer.name), ...[words, first].filter(Boolean).map((text) => make("span", {}, text))));
      });
      const mean = map.mean_agreement;
      const says = mean === null ? "" : `Rank correlation with SEA under each map; of the members with each other ${mean.toFixed(2)} on average.`;
      element.replaceChildren(make("div", { class: "sea-members" }, ...figures), make("p", { class: "sea-note" }, says));
    });
  }

  function checks(element) {
    const marks = { ok: "fine", warn: "mind", fail: "failed" };
    sea.add(() => {
      const list = page.state?.map?.checks;
      if (list && !list.length) { element.replaceChildren(make("p", { class: "sea-note" }, "Nothing to mind.")); return; }
      if (!list) { element.replaceChildren(make("p", { class: "sea-note" }, "They come with the map.")); return; }
      element.replaceChildren(make("ul", { class: "sea-checks" }, ...list.map(([level, subject, message, advice]) => make("li", { "data-level": level },
        make("span", { class: "sea-level" }, marks[level]), make("span", {}, make("b", {}, subject), `: ${message}`, advice ? `. ${advice[0].toUpperCase()}${advice.slice(1)}.` : ".")))));
    });
  }

  function parcel(element, props, watch) {
    const note = make("p", { class: "sea-note", role: "status" });
    element.replaceChildren(note);
    watch("value", () => { note.textContent = props.value?.error ?? (props.value?.name ? `Saved as ${props.value.name}.` : ""); sea.save(props.value); });
    sea.add(() => { const only = document.getElementById("picture-only"); if (only) only.hidden = !["image", undefined].includes(page.state?.kind); });
  }

  // The Python that gives what is on the screen.
  function code(element) {
    const text = make("pre", { class: "sea-code", tabindex: 0, "aria-label": "Python" });
    const copy = make("button", { type: "button", class: "sea-copy", onclick: async () => {
      await navigator.clipboard.writeText(text.textContent);
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    } }, "Copy");
    element.replaceChildren(text, copy);
    sea.add(() => { text.textContent = page.state?.map?.code ?? "It comes with the map."; copy.hidden = !page.state?.map?.code; });
  }

  // Views of the page; Gradio's own tabs lose what comes for one that is not shown.
  function tabs(element, names, first) {
    const buttons = names.map((name, i) => make("button", { type: "button", role: "tab", id: `tab-${i}`, "aria-controls": `view-${i}`, onclick: () => open(i) }, name));
    const list = make("div", { role: "tablist", class: "sea-tabs", "aria-label": "Views", onkeydown: (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = (buttons.indexOf(document.activeElement) + step + names.length) % names.length;
      open(next);
      buttons[next].focus();
    } }, ...buttons);
    function open(number) {
      names.forEach((_, i) => {
        buttons[i].setAttribute("aria-selected", String(i === number));
        buttons[i].tabIndex = i === number ? 0 : -1;
        const panel = document.getElementById(`view-${i}`);
        panel.hidden = i !== number;
        panel.setAttribute("role", "tabpanel");
        panel.setAttribute("aria-labelledby", `tab-${i}`);
      });
      sea.refresh();
    }
    element.replaceChildren(list);
    sea.openView = open;
    const wait = () => (names.every((_, i) => document.getElementById(`view-${i}`)) ? open(first) : setTimeout(wait, 20));
    wait();
  }

  return { tabs, code, progress, members, checks, parcel };
})());
