// All layers and heads of each model as small pictures with a number, and lambda by layer.

/** What the small pictures can be coloured by: id, name, what it is, whether it is a share. */
const NUMBERS = contents.numbers.map(({ id, name, what, is_share }) => [id, name, what, is_share]);

/** What is known of a head under the treatment that is shown, or what that changes. */
function numbersNow(head) {
  const now = (head.model.variants.get(state.treatment) || head.model).numbersOf(head.name);
  if (!state.isDifference) return now;
  const before = head.model.numbersOf(head.name);
  return Object.fromEntries(Object.entries(now).map(([id, x]) => [id, x - before[id]]).filter(([, x]) => !Number.isNaN(x)));
}

function numberNames() {
  const there = new Set(models.flatMap((model) => model.all.flatMap((head) => Object.keys(head.numbers))));
  const known = NUMBERS.filter(([id]) => there.has(id));
  const others = [...there].filter((id) => !NUMBERS.some(([known]) => known === id)).sort();
  return [...known, ...others.map((id) => [id, id.replace(/_/g, " "), "As in results.csv.", id.startsWith("share")])];
}

/** Buttons for all heads; their pictures follow. */
function layOverview() {
  const place = byId("overview");
  document.querySelector("main").classList.toggle("one-model", models.length === 1);
  for (const model of models) {
    const part = make("div", "", "model");
    const title = make("h3");
    title.append(make("bdi", visible(model.name)), " ", make("span", model.layout, "muted"));
    const scroll = make("div", "", "scroll");
    scroll.setAttribute("role", "group");
    scroll.addEventListener("keydown", (event) => moveAmong(model, event));
    scroll.setAttribute("aria-label", `Layers and heads of ${visible(model.name)}`);
    const grid = make("div", "", "heads");
    grid.style.setProperty("--columns", Math.max(...model.all.map((head) => head.head)) + 1);
    const layers = [...new Set(model.all.map((head) => head.layer))].sort((a, b) => a - b);
    layers.forEach((layer, row) => {
      const name = make("span", `L${layer}`, "layer");
      name.style.gridRow = row + 1;
      grid.append(name);
      for (const head of model.all.filter((head) => head.layer === layer)) grid.append(headButton(model, head, row));
    });
    scroll.append(grid);
    part.append(title, scroll);
    place.append(part);
  }
  colourOverview();
}

/** Arrow keys go from head to head of a model, of which only one is a tab stop. */
function moveAmong(model, event) {
  const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
  const now = model.all.find((head) => head.button === document.activeElement);
  const next = now && model.all.find((head) => head.layer === now.layer + down && head.head === now.head + right);
  if (!(down || right) || !now || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  if (next) next.button.focus();
}

/** Makes the button of a head the only tab stop of its model. */
function tabStop(model, head) {
  for (const other of model.all) other.button.tabIndex = other === head ? 0 : -1;
}

/** Scrolls to the buttons of the heads that are shown. */
function showButtons() {
  for (const { head } of panels) {
    const scroll = head.button.closest(".scroll");
    const top = (element) => element.getBoundingClientRect().top;
    scroll.scrollTop += top(head.button) - top(scroll) - (scroll.clientHeight - head.button.clientHeight) / 2;
  }
}

/** The small pictures, all on one scale, which is logarithmic if that of the maps that were seen first is. */
function drawThumbs() {
  const thumbs = models.flatMap((model) => model.all).map((head) => [head, head.thumb()]);
  const most = thumbs.reduce((most, [, { values }]) => values.reduce((most, x) => Math.max(most, Math.abs(x)), most), 1e-9);
  const scale = new Scale(most / 4, models.some((model) => model.maps > 1), isLog(state.firstFit), state.palette);
  for (const [head, thumb] of thumbs) drawThumb(head, thumb, scale);
}

function headButton(model, head, row) {
  const button = make("button", "", "head");
  button.type = "button";
  button.style.gridRow = row + 1;
  button.style.gridColumn = head.head + 2;
  head.canvas = make("canvas");
  head.canvas.width = head.canvas.height = 56;
  head.label = make("span");
  head.button = button;
  button.tabIndex = -1;
  if (head.detail) button.classList.add("kept");
  button.addEventListener("focus", () => tabStop(model, head));
  button.append(head.canvas, head.label);
  button.addEventListener("click", () => {
    const place = models.indexOf(model);
    panels[place].show(panels[place].named(head.name));
    state.active = place;
    byId("panels").scrollIntoView({ block: "nearest" });
  });
  return button;
}

function drawThumb(head, { bins, values }, scale) {
  const side = 56;
  const context = head.canvas.getContext("2d");
  const image = context.createImageData(side, side);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = scale.pixels;
  for (let y = 0; y < side; y++) {
    const row = Math.floor((y * bins) / side);
    for (let x = 0; x <= y; x++) {
      pixels[y * side + x] = colours[scale.place(values[(row * (row + 1)) / 2 + Math.floor((x * bins) / side)])];
    }
  }
  context.putImageData(image, 0, 0);
}

/** Numbers and colours of the buttons. */
function colourOverview() {
  const id = byId("number").value;
  const [, name, what, isShare] = numberNames().find(([known]) => known === id) || ["", "", "", false];
  const change = state.isDifference ? ` Shown is what ${state.treatment} changes${isShare ? ", in percentage points" : ""}.` : "";
  const isRanked = numberNames().some(([known]) => known === "head_attribution");
  const asks = models.some(({ prompt }) => prompt.questions.length);
  const of = isRanked ? "those that bring the answer most on other prompts" : asks ? "those with the most output from the answer" : "those of the last layers";
  byId("number-note").textContent = `${what}${change} Heads with a frame are stored token by token: ${of}.`;
  const all = models.flatMap((model) => model.all.map((head) => numbersNow(head)[id]).filter((x) => x !== undefined));
  const top = Math.max(...all.map(Math.abs), 1e-9);
  const scale = new Scale(top, state.isDifference || all.some((x) => x < 0), false, state.palette, state.isDifference);
  const words = (x) => (state.isDifference ? (isShare ? signedFixed(100 * x, 1) : signedShort(x)) : isShare ? percent(x) : short(x));
  for (const model of models) {
    for (const head of model.all) {
      const value = numbersNow(head)[id];
      head.label.textContent = value === undefined ? "–" : words(value);
      [head.label.style.backgroundColor, head.label.style.color] = value === undefined ? ["", ""] : scale.label(value);
      head.button.setAttribute("aria-label", `layer ${head.layer}, head ${head.head}: ${name} ${state.isDifference ? "changed by " : ""}${head.label.textContent}${head.detail ? ", stored token by token" : ""}`);
    }
  }
}

/** Lambda by layer: mean over heads and the least and the most, as bars with their numbers. */
function drawLambda() {
  const rows = [];
  for (const model of models.filter((model) => model.maps > 1)) {
    const layers = new Map();
    for (const head of model.all) {
      if (head.numbers.lambda !== undefined) layers.set(head.layer, [...(layers.get(head.layer) || []), head.numbers.lambda]);
    }
    for (const [layer, values] of layers) rows.push([model, layer, values]);
  }
  if (!rows.length) return;
  byId("lambda-section").hidden = false;
  const top = Math.max(...rows.flatMap(([, , values]) => values.map(Math.abs)), 1e-9);
  const table = make("table");
  table.append(make("caption", "In the rows that predict the answer: mean over the heads of a layer, and the least and the most of them."));
  const head = table.createTHead().insertRow();
  for (const text of ["model", "layer", "λ", "as a bar", "least", "most"]) {
    const cell = make("th", text);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  for (const [model, layer, values] of rows) {
    const mean = values.reduce((sum, x) => sum + x, 0) / values.length;
    const row = body.insertRow();
    const name = make("th");
    name.scope = "row";
    name.append(make("bdi", visible(model.name)));
    const bar = make("td");
    const filled = make("span", "", "bar");
    filled.style.width = `${(10 * Math.abs(mean)) / top}rem`;
    bar.append(filled);
    row.append(name, make("td", String(layer), "number"), make("td", short(mean), "number"), bar);
    row.append(make("td", short(Math.min(...values)), "number"), make("td", short(Math.max(...values)), "number"));
  }
  byId("lambda").append(table);
}
