// What the pages that hold their own data start with: a data set's, or a report.

const read = (id) => JSON.parse(document.getElementById(id).textContent);

function openPage() {
  usePalette(read("palette"));
  if (document.getElementById("summary")) openSummary();
  else openReport();
}

// Everything lies in the page, and is unpacked when it is looked at.
function openReport() {
  const groups = new Map(), inputs = read("index").inputs.map((entry, number) => ({ ...entry, number }));
  view(document, { inputs, open: (number) => {
    const entry = inputs[number];
    if (!groups.has(entry.group)) groups.set(entry.group, read(`group-${entry.group}`));
    return unpackInput(entry, groups.get(entry.group), read(`input-${number}`));
  } });
}

// A table, and rows of maps that it leads to.
async function openSummary() {
  const { table, strips } = read("summary");
  document.getElementById("table").replaceChildren(makeTable(table.headings, table.rows.map(([name, ...rest]) => {
    const strip = strips.findIndex((one) => one.title === name);
    return [strip < 0 ? name : Object.assign(make("a", name), { href: `#strip-${strip}` }), ...rest];
  })));
  await showStrips(document.getElementById("strips"), strips);
  document.querySelectorAll("#strips h2").forEach((title, k) => { title.id = `strip-${k}`; });
}
