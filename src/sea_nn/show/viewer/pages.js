// What the pages that hold their own data start with.

const read = (id) => JSON.parse(document.getElementById(id).textContent);

// A report: everything lies in the page, and is unpacked when it is looked at.
function openReport() {
  usePalette(read("palette"));
  const groups = new Map();
  const inputs = read("index").inputs.map((entry, number) => ({ ...entry, number, written: entry.score === null ? "" : entry.written }));
  view(document, { inputs, open: (number) => {
    const entry = inputs[number];
    if (!groups.has(entry.group)) groups.set(entry.group, read(`group-${entry.group}`));
    return unpackInput(entry, groups.get(entry.group), read(`input-${number}`));
  } });
}

// A page of a data set: a table, and rows of maps.
async function openSummary() {
  usePalette(read("palette"));
  const { table, strips } = read("summary");
  document.getElementById("table").replaceChildren(makeTable(table.headings, table.rows.map(([name, ...rest]) => {
    const strip = strips.findIndex((one) => one.title === name), link = make("a", name);
    link.href = `#strip-${strip}`;
    return [strip < 0 ? name : link, ...rest];
  })));
  await showStrips(document.getElementById("strips"), strips);
  document.querySelectorAll("#strips h2").forEach((title, k) => { title.id = `strip-${k}`; });
}
