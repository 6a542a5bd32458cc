// Puts the page together and listens to its controls.

/** Fits the colours to the maps that are shown. */
async function refit() {
  const seen = [];
  for (const { head } of panels) {
    if (head.has(state.quantity)) seen.push(seenBins(head, state.quantity, await pooledAt(head, state.quantity, state.pooling, baseLevel(head))));
  }
  state.fit = fitted(seen);
  await rescale();
}

/** One scale for all panels: as it fits, but for what was set by hand. */
async function rescale() {
  const { most } = state.fit;
  const log = isLog(state.fit);
  byId("log").checked = log;
  const position = state.top ?? 100 + 10 * Math.log2(endOf(state.fit) / most);
  byId("top").value = position;
  const top = most * 2 ** ((position - 100) / 10);
  const isDifference = panels.some(({ head }) => head.isDifference);
  const isSigned = isDifference || isPooledOnly(state.quantity) || (["effective", "la2"].includes(state.quantity) && models.some((model) => model.maps > 1));
  state.scale = new Scale(top, isSigned, log, state.palette, isDifference);
  byId("top-value").textContent = short(top);
  byId("top").setAttribute("aria-valuetext", short(top));
  state.scale.draw(byId("scale"));
  await scaleWords();
  redraw();
}

/** Draws what has colours of the theme again. */
function drawInTheme() {
  readTheme();
  colourOverview();
  drawThumbs();
  state.scale.draw(byId("scale"));
  panels.forEach((panel) => panel.draw());
  profiles.forEach((draw) => draw());
}

async function headChanged(panel) {
  await panel.head.load();
  models.forEach((model, i) => model.all.forEach((head) => head.button && head.button.setAttribute("aria-pressed", String(panels[i].head.name === head.name))));
  tabStop(panel.model, panel.model.names.get(panel.head.name));
  drawChanges();
  await refit();
  await read();
  if (state.row !== null) await showRow();
}

async function mapChanged() {
  await refit();
  await read();
  if (state.row !== null) await showRow();
}

function nextQuantity() {
  const select = byId("quantity");
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  select.dispatchEvent(new Event("change"));
}

function nextTreatment() {
  const select = byId("treatment");
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  select.dispatchEvent(new Event("change"));
}

function listen() {
  const on = (id, event, action) => byId(id).addEventListener(event, action);
  on("number", "change", colourOverview);
  on("treatment", "change", () => treat(...byId("treatment").value.split("\n")));
  // By hand: in a page within a page the address is another one.
  on("skip", "click", (event) => { event.preventDefault(); byId("maps").focus(); });
  on("quantity", "change", () => { state.quantity = byId("quantity").value; state.top = null; mapChanged().catch(trouble); });
  on("pooling", "change", () => { state.pooling = byId("pooling").value; state.top = null; mapChanged().catch(trouble); });
  on("palette", "change", () => {
    state.palette = byId("palette").value;
    colourOverview();
    rescale().catch(trouble);
    drawThumbs();
  });
  on("top", "input", () => { state.top = Number(byId("top").value); rescale().catch(trouble); });
  on("log", "change", () => {
    state.log = byId("log").checked;
    rescale().catch(trouble);
    drawThumbs();
  });
  const middle = (factor) => {
    const { width, height } = panels[0].size;
    zoomBy(panels[0], factor, (AXIS.left + width) / 2, (AXIS.top + height) / 2);
  };
  on("zoom-in", "click", () => middle(2));
  on("zoom-out", "click", () => middle(0.5));
  on("fit", "click", fit);
  on("to-answer", "click", toAnswer);
  on("to-sink", "click", toSink);
  on("to-key", "click", toKey);
  const go = () => {
    const [query, key] = [byId("go-query").value, byId("go-key").value].map((text) => parseInt(text, 10));
    const last = models[0].tokens - 1;
    if (!(query >= 0 && query <= last && key >= 0 && key <= query)) {
      byId("status").textContent = `Tokens are 0 to ${last}, and a query sees no key after itself.`;
      return;
    }
    goTo(query, key);
  };
  on("go", "click", go);
  for (const id of ["go-query", "go-key"]) on(id, "keydown", (event) => event.key === "Enter" && go());
  new ResizeObserver(() => { if (state.isFitted) fit(); else keepInside(); drawProfiles(); }).observe(byId("panels"));
  // Paper is white, whatever the theme.
  for (const medium of ["(prefers-color-scheme: dark)", "print"]) window.matchMedia(medium).addEventListener("change", drawInTheme);
}

/** Which token pairs are stored, and how exactly, in words. */
function keptWords() {
  const { keep, bin_tok } = models[0];
  const step = short(2 ** contents.floor);
  const where = keep.complete ? "every token pair" : `token pairs up to ${keep.band} tokens before the query, all of the question's rows, and those on needles; elsewhere bins of ${bin_tok} × ${bin_tok} tokens`;
  const bins = bin_tok === 1 ? "stored pair by pair" : `pooled to bins of ${bin_tok} × ${bin_tok} tokens before they are rounded`;
  const means = bin_tok === 1 ? "" : " Means of smaller bins are not shown.";
  const treated = everything.length === models.length ? "" : " Under treatments only the rows that predict an answer are stored pair by pair.";
  const contributions = keep.contributions_from === 0 ? "" : ` Contributions are computed for queries from ${keep.contributions_from} on.`;
  return `Of the heads with a frame the page has ${where}. Their weights are rounded to steps of ${step} or coarser, so a weight of less than half a step is shown as 0. The rows that predict an answer, and their logits, have 16 bits. Logits and contributions of other rows, and all maps from a distance, are ${bins}.${means}${contributions}${treated}`;
}

function fill() {
  byId("caption").textContent = contents.caption;
  byId("kept").textContent = keptWords();
  for (const [id, name] of numberNames()) byId("number").add(new Option(name, id));
  // The first that says something: of a plain text nothing is on the answer.
  const all = models.flatMap((model) => model.all);
  const telling = numberNames().findIndex(([id]) => all.some(({ numbers }) => Math.abs(numbers[id] ?? 0) > 1e-9));
  byId("number").selectedIndex = Math.max(0, telling);
  fillTreatments();
  for (const [quantity, name] of quantitiesOf()) byId("quantity").add(new Option(name, quantity));
  for (const [name, value] of contents.recipe) byId("recipe").append(make("dt", visible(name)), make("dd", visible(value)));
  const legend = Object.keys(REGIONS).filter((name) => models.some((model) => model.prompt.regions.some(([region]) => region === name)));
  byId("legend").append(...legend.map((name) => make("span", name, `mark ${name}`)), make("span", " tint and underline: weight in the row; dashed: negative; frame: the query; blue frame: found", "muted"));
}

/** What is seen first: all heads with their numbers, and a map of each model. Only what it shows is decoded. */
async function firstView() {
  fill();
  for (const model of models) {
    const panel = new Panel(model);
    panels.push(panel);
    byId("panels").append(panel.element);
  }
  listen();
  layOverview();
  fit();
  const row = models[0].prompt.rows[0];
  const question = models[0].prompt.questions[0];
  state.cross = { query: row ? row.start : models[0].tokens - 1, key: question ? question.answer.start : 0 };
  for (const panel of panels) panel.describe(panel.model.best);
  showButtons();
  // Nothing of this waits for a later turn of the browser, which would read on in the file first.
  await refit();
  state.firstFit = state.fit;
  drawThumbs();
  await Promise.all(panels.map((panel) => panel.firstTiles()));
  panels.forEach((panel) => panel.draw());
  performance.mark("drawn");
  await new Promise(requestAnimationFrame);
  performance.mark("first view");
}

async function start() {
  await firstView();
  await readTexts();
  performance.mark("texts");
  listenToSearch();
  drawLambda();
  for (const panel of panels) await headChanged(panel);
  state.row = state.cross.query;
  await showRow();
  scrollText(state.cross.key);
  await read();
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

start().catch(trouble);
