// The places of the app's page that Gradio has no part for. Texts from outside reach the page as text nodes.

return ({ template, look, palette }) => {
  usePalette(palette);

  // A part's value comes as one text; what is older than what was seen is not shown.
  function onValue({ props, watch }, show) {
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

  // A tree of its own in a place: the page's style and the viewer's do not meet.
  function plant({ element }, html) {
    const host = make("div"), root = host.attachShadow({ mode: "open" });
    root.innerHTML = html;
    element.replaceChildren(host);
    return root;
  }

  // An explanation in the viewer.
  function viewer(place) {
    const root = plant(place, template), { server } = place;
    let shown = null, key = null;
    const ask = server && ((what, body) => server[what]({ key, ...body }).catch(() => ({ error: "The server did not answer." })));
    root.host.hidden = true;
    onValue(place, (value) => {
      key = value.key ?? key;
      root.host.hidden = !value.one;
      if (!value.one) return;
      const { entry, group, data } = value.one, source = { inputs: [entry], open: () => unpackInput(entry, group, data) };
      if (shown) shown.replace(source);
      else shown = view(root, source, ask);
    });
  }

  function strips(place) {
    const page = make("div", null, "sea page bare");
    plant(place, look).append(page);
    const nothing = "Explain something first: then inputs, classes, models and members of this visit can be compared here.";
    onValue(place, ({ strips: rows }) => (rows.length ? showStrips(page, rows) : page.replaceChildren(make("p", nothing))));
  }

  // Pictures, or names, to choose from; with `own`, a file of one's own before them.
  function pick(place) {
    const { own, trigger } = place, list = make("div", null, "choices"), file = Object.assign(make("input"), { type: "file" });
    const label = make("label", ["Your own: drop, paste or choose a file", file], "own");
    plant(place, look).append(make("div", [own && label, list], own ? "sea pick bare" : "sea pick bare grid"));
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
    onValue(place, async ({ panels }) => list.replaceChildren(...await Promise.all(panels.map(async ({ id, title, note, image, map, shape, chosen }, index) => {
      const plane = map && await unpack(map, Uint8Array), notes = [note, id].filter(Boolean).map((text) => make("span", text));
      const button = make("button", [(plane || image) && makePanel(plane, shape, image), make("b", title), ...notes], "choice");
      if (own) button.setAttribute("aria-pressed", String(chosen));
      return Object.assign(button, { type: "button", onclick: () => trigger("select", { index, id }) });
    }))));
  }

  function parcel(place) {
    const note = Object.assign(make("p"), { role: "status" });
    place.element.replaceChildren(note);
    onValue(place, ({ name, type, data }) => {
      saveAs(name, new Blob([bytes(data)], { type }));
      note.textContent = `Saved as ${name}.`;
    });
  }

  return { viewer, strips, pick, parcel };
};
