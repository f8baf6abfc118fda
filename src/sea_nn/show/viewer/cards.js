// What the page says in words and numbers of an input, `one`, and the files that hold them.

const MOST_WARNINGS = 3;
const LEVELS = ["fail", "warn", "ok"];

// The likeliest classes, with the one that is explained, and the one it is explained against.
function listClasses({ classes, entry, rival }) {
  return makeRanking(classes.map(([number, name, score]) => {
    const role = number === entry.target ? "explained" : number === rival && "explained against";
    return [[name, role && " ", role && make("small", role)], score ?? 0, score === null ? "–" : score.toFixed(2)];
  }));
}

// How much of the model's answers each member explains, where any were asked for.
function rankMembers({ trust }) {
  if (!trust.length) return [];
  const [[best, most]] = trust, little = most < 0.1 ? ", but little" : "";
  const rows = trust.map(([name, share]) => [spoken(name), share, share < 0.005 ? "under 1\u00a0%" : percent(share)]);
  return [make("p", `The model's answers agree most with ${spoken(best)}${little}: how much of them each member explains.`),
    make("ol", makeRanking(rows), "classes")];
}

// The most important checks, and what opens or stands below them: the others, and what was assumed.
function listChecks({ checks, group: { methods, assumed, checks: shared } }) {
  const order = (check) => LEVELS.indexOf(check.level);
  // Advice stays as it is: names in it belong to code.
  const say = (text) => methods.reduce((said, name) => said.replaceAll(name, spoken(name)), text);
  const items = [...checks, ...shared].sort((a, b) => order(a) - order(b)).map(({ level, subject, message, advice }) => make("li", [
    make("span", level, `level ${level}`),
    make("div", [make("b", spoken(subject)), `: ${say(message)}`, advice && make("div", advice, "faint")]),
  ]));
  if (!items.length) items.push(make("li", "No checks were recorded.", "faint"));
  const rest = items.splice(MOST_WARNINGS), more = [];
  if (rest.length) more.push(make("details", [make("summary", `${rest.length} more`), make("ul", rest, "checks")]));
  if (assumed.length) more.push(make("h4", "Assumed"), make("ul", assumed.map((sentence) => make("li", sentence)), "sentences"));
  return { checks: items, more };
}

// Where it all comes from; what has parts of its own waits behind a click.
function tellProvenance({ provenance, evaluations }) {
  const { assumed: _, by_purpose: __, ...told } = provenance, isPlain = ([, value]) => typeof value !== "object";
  const spent = Object.entries(evaluations).map(([of, n]) => `${count(n)} for ${of}`).join(", ");
  const entries = Object.entries(told), parts = entries.filter((entry) => !isPlain(entry) && Object.keys(entry[1] ?? {}).length);
  return [makePairs([...entries.filter(isPlain), ["evaluations of the model", spent]]),
    ...parts.map(([name, values]) => make("details", [make("summary", name), makePairs(Object.entries(values))]))];
}

// A feature's name: a column's, a channel and a step, a word, or a place.
function nameFeature({ group, words }, k) {
  const { names, feature_shape: space } = group;
  if (words && group.plain) return words[k].trim() || `word ${k}`;
  if (space.length === 1) return group.plain && names ? names[k] : `${group.noun[0]} ${k}`;
  const place = [];
  for (let axis = space.length - 1, rest = k; axis >= 0; axis--) {
    place.unshift(rest % space[axis]);
    rest = Math.floor(rest / space[axis]);
  }
  if (group.view === "lines") return `${names ? names[place[0]] : `channel ${place[0]}`} at ${place[1]}`;
  return `(${place.join(", ")})`;
}

// Features in SEA's order with their gains, as CSV.
function writeOrder(one) {
  const { order, gains, group, intervals } = one, unit = group.gain_unit;
  const rows = Array.from(order, (k, place) => {
    const numbers = [gains[place], ...(intervals ?? []).slice(2 * place, 2 * place + 2)];
    return [place + 1, k, quote(nameFeature(one, k)), ...numbers.map((x) => Number(x.toPrecision(7)))].join(",");
  });
  return [`rank,feature,name,${quote(unit ? `gain in ${unit}` : "gain")}${intervals ? ",low,high" : ""}`, ...rows, ""].join("\r\n");
}

// All of it, as JSON.
function writeData({ entry, classes, order, gains, curve, sums, sides, checks, trust, group }) {
  const { methods, noun, n, shape, unit, gain_unit, provenance, assumed, evaluations } = group;
  const about = { name: entry.name, class: entry.target, [unit]: entry.score, classes, features: { noun: noun[0], n, shape } };
  const found = { order: [...order], gains: [...gains], gain_unit, sums, for: sides[0], against: sides[1], curve, methods, trust };
  return JSON.stringify({ ...about, ...found, checks: [...checks, ...group.checks], assumed, evaluations, provenance }, null, 1);
}
