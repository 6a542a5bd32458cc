// The maps in numbers: the pair under the cross, and the row that was taken, as a profile, as keys and as text.

const QUANTITIES = [
  ["effective", models.some((model) => model.maps > 1) ? "effective (A₁ − λA₂)" : "attention"], ["a1", "A₁"], ["a2", "A₂"], ["la2", "λA₂"],
  ["contribution", "contribution to the output"],
  ["logits1", "logits of A₁"], ["logits2", "logits of A₂"],
];
/** Those that a model has. */
const quantitiesOf = () => QUANTITIES.filter(([quantity]) => models.some((model) => model.best.has(quantity)));
const SHORT_NAMES = { effective: "effective", a1: "A₁", a2: "A₂", la2: "λA₂", contribution: "contribution", logits1: "logit 1", logits2: "logit 2" };

/** Keys listed of a row. */
const TOP_KEYS = 12;

/** Tokens of the text that are put into the page together, when they come into view. */
const BLOCK = 256;

/** Makes an element with text. */
function make(tag, text = "", name = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

/** The pooled number of a pair's bin. */
async function binOf(head, quantity, query, key) {
  const at = baseLevel(head);
  const grid = await pooledAt(head, quantity, state.pooling, at);
  const [row, column] = [Math.floor(query / grid.tok), Math.floor(key / grid.tok)];
  if (row < firstRow(head, quantity, grid.tok)) return null;
  return { value: grid.values[(row * (row + 1)) / 2 + column], tok: grid.tok, isDifference: head.isDifference };
}

/** A row's numbers by key: token by token where they were kept (`error` is how far off they may be), and NaN elsewhere. */
async function rowOf(head, quantity, query) {
  if (head.isDifference) return differenceOfRows(head, quantity, query);
  const values = new Float32Array(query + 1).fill(NaN);
  const error = new Float32Array(query + 1);
  if (!head.detail || !head.has(quantity)) return { values, error };
  if (isPooledOnly(quantity)) {
    const found = await (quantity === "contribution" ? head.fine("contributions", 0, query) : head.fine("logits", quantity === "logits1" ? 0 : 1, query));
    if (found) found.values.forEach((value, key) => { values[key] = value; error[key] = found.steps[key] / 2; });
    return { values, error };
  }
  await head.load();
  for (const [map, factor] of head.mix(quantity, query).entries()) {
    if (map >= head.model.maps || factor === 0) continue;
    const fine = await head.fine("answers", map, query);
    if (!fine && !head.hasRows) return { values, error };
    const row = fine || coarseRow(head, await head.askRows(map, query), query);
    row.values.forEach((value, key) => {
      values[key] = (Number.isNaN(values[key]) ? 0 : values[key]) + factor * value;
      error[key] += Math.abs(factor) * (row.off || 0.5) * row.steps[key];
    });
  }
  return { values, error };
}

/** A row as it was kept in bytes: weights and steps by key, and how many steps a weight may be off, having been rounded twice. */
function coarseRow(head, rows, query) {
  const [values, steps] = [new Float32Array(query + 1).fill(NaN), new Float32Array(query + 1)];
  const row = query - rows.from;
  rows.kept[row].forEach((run, i) => {
    values.fill(0, run * RUN, Math.min((run + 1) * RUN, query + 1));
    steps.fill(rows.steps[row][i], run * RUN, Math.min((run + 1) * RUN, query + 1));
  });
  addRow(values, rows, query, 1, 0, query + 1);
  return { values, steps, off: 0.75 };
}

/** The last rows read, so that moving along a row does not read it again. */
const readRows = new Cache(24);
const askRow = (head, quantity, query) => readRows.ask(`${head.id} ${quantity} ${query}`, () => rowOf(head, quantity, query));

/** What is known of a pair: number, how far off it may be, or its bin. */
async function pairOf(head, quantity, query, key) {
  const { values, error } = await askRow(head, quantity, query);
  if (!Number.isNaN(values[key])) return { value: values[key], error: error[key] };
  return head.has(quantity) ? binOf(head, quantity, query, key) : null;
}

const tokenWords = (model, token) => `${token} “${model.text(token)}” (${model.region(token)})`;

/** Says what is under the cross, in words and as a table. */
let reads = 0;
async function read() {
  const turn = ++reads;
  const rows = [];
  const quantities = quantitiesOf();
  for (const panel of panels) {
    const { query, key } = panel.cross;
    const told = [];
    for (const [head, name] of treatmentsOf(panel)) {
      const numbers = [];
      for (const [quantity] of quantities) numbers.push(head.has(quantity) ? await pairOf(head, quantity, query, key) : null);
      told.push({ name, numbers });
    }
    rows.push({ panel, query, key, told });
  }
  if (turn !== reads) return; // the cross has moved on
  const { panel, query, key } = rows[state.active];
  const at = quantities.findIndex(([quantity]) => quantity === state.quantity);
  const shown = rows[state.active].told[0].numbers[at];
  byId("status").textContent =
    `query ${tokenWords(panel.model, query)} → key ${tokenWords(panel.model, key)}` + (shown ? `: ${SHORT_NAMES[state.quantity]} ${inWords(shown)}` : "");
  const table = make("table");
  table.append(make("caption", "The pair under the cross, in every kind of map."));
  const head = table.createTHead().insertRow();
  for (const text of ["model", "head", ...quantities.map(([quantity]) => SHORT_NAMES[quantity])]) {
    const cell = make("th", text);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  for (const { panel, told } of rows) body.append(...told.map(({ name, numbers }) => pairRow(panel, name, quantities, numbers)));
  byId("reading").replaceChildren(table);
}

/** A pair in every kind of map of a panel's head, under a treatment if it has a name. */
function pairRow(panel, treatment, quantities, numbers) {
  const row = make("tr");
  const name = make("th");
  name.scope = "row";
  name.append(make("bdi", visible(panel.model.name)), treatment ? ` ${treatment}` : "");
  row.append(name, make("td", panel.head.name));
  numbers.forEach((number, i) => {
    const cell = make("td", number ? inWords(number) : "", "number");
    if (number) Object.assign(cell.dataset, { quantity: quantities[i][0], value: number.value, error: number.error ?? "" });
    row.append(cell);
  });
  return row;
}

/** `0.0312 ± 0.0005`, `below 0.0015`, or the bin it is of. */
function inWords({ value, error, tok, isDifference }) {
  if (tok) return `${short(value)} (${isDifference ? "difference of the " : ""}${state.pooling === "max" ? "largest" : "mean"} of ${tok} × ${tok})`;
  if (value === 0 && error > 0) return `0 ± ${short(error)}`;
  return error > 5e-6 * Math.max(1, Math.abs(value)) ? `${short(value)} ± ${error.toPrecision(1)}` : short(value);
}

/** Takes the row under the cross. */
function takeRow() {
  state.row = state.cross.query;
  redraw();
  showRow().catch(trouble);
}

/** The row of a panel's head: token by token, and where nothing was kept the bins. */
async function wholeRow(panel, query) {
  const { head } = panel;
  const quantity = head.has(state.quantity) ? state.quantity : "effective";
  const row = await askRow(head, quantity, query);
  const values = row.values.slice();
  const pooled = new Uint8Array(values.length);
  if (values.some(Number.isNaN)) {
    const grid = await pooledAt(head, quantity, state.pooling, baseLevel(head));
    const bin = Math.floor(query / grid.tok);
    const isThere = bin >= firstRow(head, quantity, grid.tok);
    for (let key = 0; key < values.length; key++) {
      if (!Number.isNaN(values[key])) continue;
      values[key] = isThere ? grid.values[(bin * (bin + 1)) / 2 + Math.floor(key / grid.tok)] : 0;
      pooled[key] = 1;
    }
  }
  return { panel, query, quantity, values, pooled };
}

/** The keys of largest magnitude of a row, of those told token by token; not those of less than 1/10,000 of the largest. */
function topKeys({ values, pooled }) {
  const most = values.reduce((most, x, key) => (pooled[key] ? most : Math.max(most, Math.abs(x))), 0);
  const keys = Array.from(values.keys()).filter((key) => !pooled[key] && Math.abs(values[key]) > 1e-4 * most);
  return keys.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, TOP_KEYS);
}

let rowsShown = [];
let nextKey = 0;
async function showRow() {
  const taken = state.row;
  const rows = await Promise.all(panels.map((panel) => wholeRow(panel, panel.at(taken))));
  if (taken !== state.row) return;
  rowsShown = rows;
  nextKey = 0;
  const { panel, query } = rows[state.active];
  const predicts = panel.model.prompt.questions.length && panel.model.predicts(query) ? ", which predicts a part of the answer" : "";
  byId("row-words").textContent = `Query ${tokenWords(panel.model, query)}${predicts}.${await sinkWords(query)}`;
  drawProfiles();
  listKeys();
  colourText();
}

/** What sinks, which no key belongs to, take of the row in each head that is shown; nothing where no model has sinks. */
async function sinkWords(taken) {
  const words = [];
  for (const panel of panels) {
    const head = panel.head.treated || panel.head;
    await head.load();
    if (!head.taken || !head.taken.length) continue;
    const query = panel.at(taken);
    const shares = head.taken.map((of, map) => `${percent(of[query])} of ${head.taken.length > 1 ? `A${"₁₂"[map]}` : "the row"}`);
    words.push(` In head ${head.name} of ${visible(panel.model.name)} ${shares.join(" and ")} goes to the sink, which no token belongs to: the weights of the tokens sum to the rest.`);
  }
  return words.join("");
}

/** The largest weight of a row, and where its profile is cut so that the first token, often a sink, does not flatten the rest. */
function profileTop(values) {
  const first = Math.abs(values[0]);
  const rest = values.subarray(1).reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return { most: Math.max(first, rest), cut: first > 4 * rest && rest > 0 ? 1.25 * rest : Math.max(first, rest) };
}

/** The profile of each row: weights over the keys, all on one scale; of keys that share a pixel the largest. */
let profiles = []; // draws each again
function drawProfiles() {
  const cuts = rowsShown.map(({ values }) => profileTop(values));
  const top = Math.max(...cuts.map(({ cut }) => cut), 1e-9);
  profiles = [];
  byId("profiles").replaceChildren(...rowsShown.map((row, i) => {
    const figure = make("figure", "", "profile");
    const caption = make("figcaption");
    caption.append(make("bdi", visible(row.panel.model.name)), ` head ${row.panel.head.name}: ${SHORT_NAMES[row.quantity]}, up to ${short(cuts[i].most)}${cuts[i].most > top ? `; bars are cut at ${short(top)}` : ""}`);
    const canvas = make("canvas");
    const best = topKeys(row)[0];
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", best === undefined ? "Profile of the row" : `Profile of the row; largest at key ${tokenWords(row.panel.model, best)}: ${short(row.values[best])}`);
    figure.append(caption, canvas);
    canvas.addEventListener("click", (event) => {
      const key = Math.floor((event.offsetX / canvas.clientWidth) * row.panel.model.tokens);
      goTo(state.row, key / row.panel.ratio);
    });
    const draw = () => drawProfile(canvas, row, top);
    profiles.push(draw);
    requestAnimationFrame(draw);
    return figure;
  }));
}

function drawProfile(canvas, { values, panel }, top) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const { tokens, prompt } = panel.model;
  const strip = 8;
  for (const [name, start, end] of prompt.regions) {
    context.fillStyle = `#${REGIONS[name]}`;
    context.fillRect((start / tokens) * width, height - strip, Math.max(1.5, ((end - start) / tokens) * width), strip);
  }
  const hasNegative = values.some((x) => x < 0);
  const zero = hasNegative ? (height - strip) / 2 : height - strip - 1;
  const room = hasNegative ? zero - 2 : zero - 2;
  const css = getComputedStyle(document.body);
  context.fillStyle = css.getPropertyValue("--muted");
  context.fillRect(0, zero, width, 1);
  const bars = new Float32Array(Math.ceil(width));
  values.forEach((value, key) => {
    const x = Math.min(bars.length - 1, Math.floor((key / tokens) * width));
    if (Math.abs(value) > Math.abs(bars[x])) bars[x] = value;
  });
  bars.forEach((value, x) => {
    const length = Math.min(1, Math.abs(value) / top) * room;
    if (length < 0.5) return;
    context.fillStyle = css.getPropertyValue(value < 0 ? "--negative" : "--positive");
    context.fillRect(x, value < 0 ? zero : zero - length, 1.5, length);
  });
}

/** The keys of largest weight of each row, as buttons that go there. */
function listKeys() {
  byId("keys").replaceChildren(...rowsShown.map((row) => {
    const { panel, values } = row;
    const section = make("div", "", "top-keys");
    const title = make("h3");
    title.append("Top keys of ", make("bdi", visible(panel.model.name)));
    const list = make("ol");
    for (const key of topKeys(row)) {
      const button = make("button");
      button.type = "button";
      const token = make("bdi", `“${panel.model.text(key)}”`);
      button.append(token, ` ${key} · ${panel.model.region(key)} · ${short(values[key])}`);
      button.addEventListener("click", () => { activate(panel); goTo(state.row, key / panel.ratio); });
      const item = make("li");
      item.append(button);
      list.append(item);
    }
    section.append(title, list);
    return section;
  }));
}

/** The text in blocks that are filled when they come into view. */
let textOf = null;
const watcher = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => fillBlock(target)), { root: byId("text"), rootMargin: "600px" });
function layText(model) {
  if (textOf && textOf.prompt === model.prompt) return void (textOf = model);
  textOf = model;
  const blocks = [];
  for (let from = 0; from < model.tokens; from += BLOCK) {
    const block = make("div", "", "block");
    block.dataset.from = from;
    watcher.observe(block);
    blocks.push(block);
  }
  byId("text").replaceChildren(...blocks);
  byId("text").classList.toggle("long", blocks.length > 4);
  showFound();
}

function fillBlock(block) {
  if (block.childElementCount) return;
  const { prompt, tokens } = textOf;
  const from = Number(block.dataset.from);
  const fragment = document.createDocumentFragment();
  for (let token = from; token < Math.min(from + BLOCK, tokens); token++) {
    const region = prompt.regions.find(([, start, end]) => token >= start && token < end);
    if (region && region[1] === token && region[0] !== "filler") fragment.append(make("span", region[0], `mark ${region[0]}`));
    const span = make("span", textOf.text(token), region ? `token ${region[0]}` : "token");
    span.dataset.token = token;
    span.title = `token ${token}`;
    fragment.append(span);
  }
  block.append(fragment);
  markBlock(block);
  colourBlock(block);
}

/** How strongly each token is shown, from the row of the active panel: four steps of tint, and underlines as thick. */
function colourBlock(block) {
  const row = rowsShown[state.active];
  if (!row) return;
  const top = row.values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  for (const span of block.querySelectorAll(".token")) {
    const value = row.values[Number(span.dataset.token)] || 0;
    const size = top > 0 ? Math.sqrt(Math.abs(value) / top) : 0;
    span.dataset.weight = size === 0 ? 0 : Math.min(4, Math.ceil(4 * size - 0.2));
    span.dataset.sign = value < 0 ? "negative" : "positive";
    span.classList.toggle("query", Number(span.dataset.token) === row.query);
  }
}

function colourText() {
  layText(rowsShown[state.active].panel.model);
  for (const block of byId("text").children) if (block.childElementCount) colourBlock(block);
}

byId("text").addEventListener("click", (event) => {
  const token = event.target.dataset && event.target.dataset.token;
  if (token === undefined || !textOf) return;
  const { ratio } = panels[state.active];
  goTo(state.row === null ? state.cross.query : Math.max(state.row, Number(token) / ratio), Number(token) / ratio);
});

/** Scrolls the text to a token. */
function scrollText(token) {
  const text = byId("text");
  const block = text.children[Math.floor(token / BLOCK)];
  if (!block) return;
  fillBlock(block);
  const span = block.querySelector(`[data-token="${token}"]`);
  text.scrollTop += span.getBoundingClientRect().top - text.getBoundingClientRect().top - text.clientHeight / 3;
}

function toAnswer() {
  const { model, ratio } = panels[state.active];
  const question = model.prompt.questions[0];
  if (!question) return void (byId("status").textContent = "This text has no answer.");
  goTo(model.prompt.rows[0].start / ratio, question.answer.start / ratio);
  takeRow();
  scrollText(question.answer.start);
}

let sinkAt = 0;
function toSink() {
  const { head, ratio } = panels[state.active];
  if (head.sinks.length === 0) return void (byId("status").textContent = `Head ${head.name} has no attention sinks.`);
  const sink = head.sinks[sinkAt++ % head.sinks.length];
  goTo(Math.max(state.cross.query, (sink + 16) / ratio), sink / ratio);
}

function toKey() {
  const row = rowsShown[state.active];
  const keys = row ? topKeys(row) : [];
  if (!keys.length) return void (byId("status").textContent = "Select a row first: click on a map, or press Enter.");
  const key = keys[nextKey++ % keys.length];
  goTo(state.row, key / row.panel.ratio);
  scrollText(key);
}
