// The places of the app's page that Gradio has no part for. Texts from outside reach the page as text nodes.

return ({ template, look, palette }) => {
  usePalette(palette);

  // A part's value comes as one text; what is older than what was seen is not shown.
  function onValue(props, watch, show) {
    let text = null, turn = 0;
    const fill = () => {
      if (!props.value || props.value === text) return;
      text = props.value;
      const value = JSON.parse(text);
      if (value.turn && value.turn < turn) return;
      turn = value.turn ?? turn;
      show(value);
    };
    watch("value", fill);
    fill();
  }

  function attach(element, html) {
    const shadow = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    shadow.innerHTML = html;
    return shadow;
  }

  // An explanation in the viewer, in a tree of its own: the page's style and the viewer's do not meet.
  function viewer(element, props, watch, trigger, server) {
    let shown = null, key = null;
    const ask = server && ((what, body) => server[what]({ key, ...body }).catch(() => ({ error: "The server did not answer." })));
    const host = make("div");
    element.replaceChildren(host);
    onValue(props, watch, (value) => {
      key = value.key ?? key;
      host.hidden = !value.one;
      if (!value.one) return;
      const { entry, group, data } = value.one, source = { inputs: [entry], open: () => unpackInput(entry, group, data) };
      if (shown) shown.replace(source);
      else shown = view(attach(host, template), source, ask);
    });
  }

  function strips(element, props, watch) {
    const host = make("div"), place = make("div", undefined, "sea page bare");
    element.replaceChildren(host);
    attach(host, look).append(place);
    onValue(props, watch, ({ strips: rows }) => showStrips(place, rows)
      .then(() => { if (!rows.length) place.replaceChildren(make("p", "Explain something first: then inputs, classes, models and members of this visit can be compared here.")); }));
  }

  // Pictures, or names, to choose from; with `own`, a file of one's own before them.
  function pick(element, props, watch, trigger, server, own) {
    const host = make("div"), place = make("div", undefined, "sea pick bare");
    element.replaceChildren(host);
    attach(host, look).append(place);
    const list = make("div", undefined, "choices"), file = Object.assign(make("input"), { type: "file" });
    const label = make("label", "Your own: drop, paste or choose a file", "own");
    label.append(file);
    place.append(...(own ? [label] : []), list);
    place.classList.toggle("grid", !own);
    const send = (chosen) => {
      if (!chosen) return;
      const reader = new FileReader();
      reader.onload = () => trigger("upload", { name: chosen.name, data: reader.result.split(",")[1] ?? "" });
      reader.readAsDataURL(chosen);
    };
    if (own) {
      file.addEventListener("change", () => { send(file.files[0]); file.value = ""; });
      document.addEventListener("dragover", (event) => event.preventDefault());
      document.addEventListener("drop", (event) => { event.preventDefault(); send(event.dataTransfer.files[0]); });
      document.addEventListener("paste", (event) => send(event.clipboardData.files[0]));
    }
    onValue(props, watch, async ({ panels }) => {
      const buttons = await Promise.all(panels.map(async ({ id, title, note, image, map, shape, chosen }, index) => {
        const button = make("button", undefined, "choice");
        button.type = "button";
        if (own) button.setAttribute("aria-pressed", String(chosen));
        const plane = map && await unpack(map, Uint8Array);
        if (plane || image) button.append(makePanel(plane, shape, image));
        button.append(make("b", title), ...[note, id].filter(Boolean).map((text) => make("span", text)));
        button.addEventListener("click", () => trigger("select", { index, id }));
        return button;
      }));
      list.replaceChildren(...buttons);
      list.dataset.count = String(buttons.length);
    });
  }

  function parcel(element, props, watch) {
    const note = make("p");
    note.setAttribute("role", "status");
    element.replaceChildren(note);
    onValue(props, watch, ({ name, type, data }) => {
      saveAs(name, new Blob([bytes(data)], { type }));
      note.textContent = `Saved as ${name}.`;
    });
  }

  return { viewer, strips, pick, parcel };
};
