// Treatments: the same heads in a pass under a condition, what that changes as a map of differences, and what it changes in
// words and numbers.

/** A head under a treatment less the same head as it is. */
class Difference {
  constructor(treated, asItIs) {
    const { model, layer, head, name, detail, numbers, window } = treated;
    Object.assign(this, { model, layer, head, name, detail, numbers, window, treated, asItIs, sinks: asItIs.sinks });
    this.id = `${treated.id}-difference`;
    this.isDifference = true;
    this.hasRows = false; // of a treated pass only the rows that answer are kept token by token
  }
  async load() {}
  has(quantity) { return !quantity.startsWith("logits") && this.treated.has(quantity) && this.asItIs.has(quantity); }
  /** Bin by bin: of means the mean of the differences, of largest magnitudes the difference of those. */
  async pooled(quantity, pooling) {
    const [treated, asItIs] = await Promise.all([this.treated, this.asItIs].map((head) => head.pooled(quantity, pooling)));
    return { ...treated, values: treated.values.map((x, i) => x - asItIs.values[i]) };
  }
}

const differences = new Map();
function differenceOf(treated, asItIs) {
  if (!differences.has(treated.id)) differences.set(treated.id, new Difference(treated, asItIs));
  return differences.get(treated.id);
}

/** A row of differences: both numbers may be off. */
async function differenceOfRows(head, quantity, query) {
  const [treated, asItIs] = await Promise.all([head.treated, head.asItIs].map((of) => askRow(of, quantity, query)));
  return {
    values: treated.values.map((x, key) => x - asItIs.values[key]),
    error: treated.error.map((x, key) => x + asItIs.error[key]),
  };
}

/** What is told of the pair under the cross: the head that is shown, and what it is compared with. */
function treatmentsOf({ head, model }) {
  if (head.isDifference) return [[head, "change"], [head.treated, head.model.condition], [head.asItIs, "as it is"]];
  if (head.model.condition === null) return [[head, ""]];
  return [[head, head.model.condition], [model.names.get(head.name), "as it is"]];
}

const conditionsThere = () => [...new Set(everything.map(({ condition }) => condition))].filter((condition) => condition !== null);

/** The switch: as it is, under each condition, and what each changes. */
function fillTreatments() {
  const select = byId("treatment");
  select.add(new Option("as it is", ""));
  for (const condition of conditionsThere()) select.add(new Option(visible(condition), condition));
  for (const condition of conditionsThere()) select.add(new Option(`what ${visible(condition)} changes`, `${condition}\ndifference`));
  select.parentElement.hidden = select.options.length < 2;
}

/** Shows the same heads in the pass under another condition, or what that changes. */
function treat(condition, difference) {
  state.treatment = condition;
  state.isDifference = difference !== undefined;
  state.top = null;
  colourOverview();
  for (const panel of panels) panel.show(panel.named(panel.head.name));
}

/** What the colours of differences mean, and where there are any. */
async function scaleWords() {
  const [less, more] = state.palette === "grey" ? ["dark", "light"] : ["purple", "green"];
  byId("scale-words").hidden = !state.isDifference;
  if (!state.isDifference) return;
  const first = await firstChange();
  byId("scale-words").textContent =
    `The maps show what ${visible(state.treatment)} changes, on a scale of their own: ${less} is less than as it is, ${more} is more. ` +
    "Of bins it is the difference of their largest magnitudes or of their means; in the rows that answer, of single weights. " +
    (first === null ? "Here nothing changes." : first > 0 ? `Queries before ${first} are as they were.` : "");
}

/** The first query of the first bin in which any panel's map changes; nothing if none does. */
async function firstChange() {
  let first = Infinity;
  for (const { head, ratio } of panels) {
    if (!head.isDifference || !head.has(state.quantity)) continue;
    const grid = await pooledAt(head, state.quantity, state.pooling, baseLevel(head));
    const cell = grid.values.findIndex((x) => x !== 0);
    const row = Math.floor((Math.sqrt(8 * cell + 1) - 1) / 2); // row r begins at r (r + 1) / 2
    if (cell >= 0) first = Math.min(first, Math.floor((row * grid.tok) / ratio));
  }
  return Number.isFinite(first) ? first : null;
}

/** A number with its sign; what rounds to 0 has none. */
const withSign = (x, text) => (Number(text) === 0 ? text : `${x < 0 ? "−" : "+"}${text}`);
const signedFixed = (x, digits) => withSign(x, Math.abs(x).toFixed(digits));
const signedShort = (x) => withSign(x, short(Math.abs(x)));

/** From one number to another: `−3.214 to −0.512 (+2.702 nats)`. */
const fromTo = (before, after, digits, unit) => `${before.toFixed(digits)} to ${after.toFixed(digits)} (${signedFixed(after - before, digits)}${unit})`;

/** The share of the output on the answer of each head as it is and under a treatment, what changes most first. */
function shareChanges(model, variant) {
  const of = (name) => [model, variant].map((of) => of.numbersOf(name)["share_out answer"]);
  const changes = model.all.map(({ name }) => [name, ...of(name)]).filter(([, before, after]) => before !== undefined && after !== undefined);
  return changes.sort((a, b) => Math.abs(b[2] - b[1]) - Math.abs(a[2] - a[1]));
}

/** What a treatment changed of a model, in words. */
function changeWords(model, variant) {
  const [before, after] = [model.answers, variant.answers];
  const words = [];
  if (after.accuracy !== undefined) words.push(`the answer is ${after.accuracy ? "found" : "missed"}${after.accuracy === before.accuracy ? ", as before" : `, and was ${before.accuracy ? "found" : "missed"} before`}`);
  if (after.answer_log_prob !== undefined) words.push(`its log-probability goes from ${fromTo(before.answer_log_prob, after.answer_log_prob, 3, " nats")}`);
  const [most] = shareChanges(model, variant);
  if (most) words.push(`the answer's share of a head's output changes most in head ${most[0]}, from ${percent(most[1])} to ${percent(most[2])}`);
  return words.length ? `${words.join("; ")}.` : "no question was asked.";
}

function tableOf(caption, headings, name) {
  const table = make("table", "", name);
  table.append(make("caption", caption));
  const head = table.createTHead().insertRow();
  for (const text of headings) {
    const cell = make("th", text);
    cell.scope = "col";
    head.append(cell);
  }
  return [table, table.createTBody()];
}

/** A row that begins with a model's name. */
function modelRow(body, model, cells, numbers) {
  const row = body.insertRow();
  const name = make("th");
  name.scope = "row";
  name.append(make("bdi", visible(model.name)));
  row.append(name, ...cells.map((text, i) => make("td", text, numbers.includes(i) ? "number" : "")));
  return row;
}

/** What each treatment changed of how the question was answered, and of the head that is shown. */
function answersTable() {
  const [table, body] = tableOf(
    "What the treatments change on this prompt: the answer, its log-probability in nats, and its share of the output of the head that is shown.",
    ["model", "treatment", "answer", "log-prob", "change", "head", "share of the output", "change"],
  );
  for (const panel of panels) {
    for (const variant of panel.model.variants.values()) {
      const of = (model) => [model.answers.answer_log_prob, model.numbersOf(panel.head.name)["share_out answer"]];
      const [[logProb, share], [before, shareBefore]] = [of(variant), of(panel.model)];
      const isChange = variant !== panel.model;
      const { accuracy } = variant.answers;
      const cells = [
        variant.condition === null ? "as it is" : visible(variant.condition), accuracy === undefined ? "–" : accuracy === 1 ? "found" : "missed",
        logProb === undefined ? "–" : logProb.toFixed(3), isChange && logProb !== undefined ? signedFixed(logProb - before, 3) : "",
        panel.head.name, percent(share),
        isChange && share !== undefined ? `${signedFixed(100 * (share - shareBefore), 1)} points` : "",
      ];
      const row = modelRow(body, panel.model, cells, [2, 3, 5, 6]);
      if ((variant.condition || "") === state.treatment) row.className = "now";
    }
  }
  return table;
}

/** What each treatment changed of the answer's share of every head's output. */
function headsTable(pairs) {
  const [table, body] = tableOf("The answer's share of the output of each head, as it is and under the treatment.", ["model", "treatment", "head", "as it is", "treated", "change in points"]);
  for (const [model, variant] of pairs) {
    for (const [name, before, after] of shareChanges(model, variant)) {
      modelRow(body, model, [visible(variant.condition), name, percent(before), percent(after), signedFixed(100 * (after - before), 1)], [2, 3, 4]);
    }
  }
  return table;
}

/** What the treatments changed: in words, the answers, and folded away all heads. */
function drawChanges() {
  const pairs = models.flatMap((model) => [...model.variants.values()].filter((variant) => variant !== model).map((variant) => [model, variant]));
  const place = byId("changes");
  place.hidden = pairs.length === 0;
  if (!pairs.length) return;
  const words = pairs.map(([model, variant]) => {
    const line = make("p");
    line.append(make("bdi", visible(model.name)), ` under ${visible(variant.condition)}: ${changeWords(model, variant)}`);
    return line;
  });
  const wasOpen = place.querySelector("details")?.open;
  const all = make("details");
  all.append(make("summary", "What changes in every head"), headsTable(pairs));
  all.open = Boolean(wasOpen);
  place.replaceChildren(...words, answersTable(), all);
}
