// A panel: one head's map on a canvas, with regions along both axes, a cross that keys and pointers move, and a view that all
// panels share.

/** Room for regions, numbers and tokens along the axes, in pixels. */
const AXIS = { left: 62, top: 50, strip: 10 };

/** From this size of a cell on its number is written into it. */
const CELL_WITH_NUMBER = 44;

const state = {
  quantity: "effective",
  pooling: "max",
  palette: "colour",
  treatment: "", // the condition of the pass that is shown
  isDifference: false, // its difference to the pass as it is is shown
  log: null, // whether the box is ticked; nothing until somebody touches it
  top: null, // how far the slider is moved; nothing until somebody does
  fit: fitted([]), // of the maps that are shown
  firstFit: fitted([]), // of those that were seen first
  isFitted: true, // the whole map is shown, and stays so when the window changes
  view: { query: 0, key: 0, zoom: 1 }, // upper left corner in tokens of the first model, pixels per token
  cross: { query: 0, key: 0 }, // in tokens of the first model
  row: null,
  active: 0,
  scale: new Scale(1, false, false, "colour"),
};
const everything = contents.models.map((data, index) => new Model(data, index));
const models = everything.filter((model) => model.condition === null);
for (const model of everything) models.find(({ name }) => name === model.name).variants.set(model.condition || "", model);
const panels = [];

/** Draws everything once before the next frame, however often it is asked for. */
let drawing = false;
function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    panels.forEach((panel) => panel.draw());
  });
}

class Panel {
  constructor(model) {
    this.model = model;
    this.head = model.best;
    this.ratio = model.tokens / models[0].tokens; // of its tokens to those of the view
    this.element = document.createElement("figure");
    this.caption = document.createElement("figcaption");
    this.select = document.createElement("select");
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-describedby", "status");
    this.note = document.createElement("span");
    this.note.className = "muted";
    const name = document.createElement("bdi");
    name.textContent = visible(model.name);
    const label = document.createElement("label");
    label.append(" head ", this.select);
    this.caption.append(name, label, " ", this.note);
    this.element.append(this.caption, this.canvas);
    for (const head of model.all) this.select.add(new Option(head.name + (head.detail ? "" : " (small)"), head.name));
    this.select.addEventListener("change", () => this.show(this.named(this.select.value)));
    this.pointers = new Map();
    this.listen();
  }

  /** The head of this name under the treatment that is shown; as it is, where it was not kept under that. */
  named(name) {
    const asItIs = this.model.names.get(name);
    const treated = state.treatment === "" ? undefined : this.model.variants.get(state.treatment)?.names.get(name);
    return treated && state.isDifference ? differenceOf(treated, asItIs) : treated || asItIs;
  }

  /** Shows another head. */
  show(head) {
    this.describe(head);
    headChanged(this).catch(trouble);
  }

  /** The tiles of the whole map, once they are there. */
  async firstTiles() {
    const at = Math.max(baseLevel(this.head), this.level);
    await pooledAt(this.head, state.quantity, state.pooling, at);
    const tiles = () => new Promise((done) => tileValues(this.head, state.quantity, state.pooling, at, 0, 0, done) && done());
    await tiles();
    redraw();
  }

  /** Makes a head the one that is shown, in words. */
  describe(head) {
    this.head = head;
    this.select.value = head.name;
    const numbers = head.numbers;
    const share = numbers["share_out answer"] ?? numbers["share_abs answer"];
    const words = [head.hasRows ? "token by token" : head.detail ? "answering rows token by token" : "small picture only"];
    if (share !== undefined && this.model.prompt.questions.length) words.push(`answer ${percent(share)}`);
    if (numbers.lambda !== undefined) words.push(`λ ${numbers.lambda.toFixed(2)}`);
    if (state.treatment !== "") words.push(head.isDifference ? `${head.model.condition} less as it is` : head.model.condition ?? "as it is: not kept under the treatment");
    this.note.textContent = words.join(" · ");
    this.canvas.setAttribute("aria-label", `Attention map of ${visible(this.model.name)}, layer ${head.layer}, head ${head.head}. Arrows move the cross, plus and minus zoom, Enter takes the row.`);
  }

  get size() { return { width: this.canvas.clientWidth, height: this.canvas.clientHeight }; }
  get zoom() { return state.view.zoom / this.ratio; }
  /** The level of the smallest bins that are at least a pixel wide: narrower ones would be dropped where they are drawn. */
  get level() { return Math.max(0, Math.ceil(Math.log2(1 / this.zoom) - 1e-9)); }
  get origin() { return { query: state.view.query * this.ratio, key: state.view.key * this.ratio }; }

  /** Its token where a token of the first model is, which may lie between two of those. */
  at(token) { return Math.min(Math.floor(token * this.ratio + 1e-6), this.model.tokens - 1); }

  /** The tokens under a point of the canvas. */
  tokensAt(x, y) {
    const { query, key } = this.origin;
    return { query: Math.floor(query + (y - AXIS.top) / this.zoom), key: Math.floor(key + (x - AXIS.left) / this.zoom) };
  }

  draw() {
    const { width, height } = this.size;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const css = getComputedStyle(document.body);
    this.ink = css.color;
    context.fillStyle = css.getPropertyValue("--masked");
    context.fillRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    if (this.head.has(state.quantity)) this.drawTiles(context, width, height);
    else this.say(context, width, height, this.head.detail ? (this.head.isDifference ? "Of logits no difference is shown: those that are masked have none." : "This model has no such map.") : "Of this head there is a small picture of its effective map only.");
    this.drawNumbers(context, width, height);
    this.drawCross(context, width, height);
    this.drawAxes(context, width, height);
  }

  say(context, width, height, words) {
    context.fillStyle = this.ink;
    context.font = "14px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillText(words, (AXIS.left + width) / 2, (AXIS.top + height) / 2, width - AXIS.left);
  }

  /** The pooled bins, and on them what token pairs tell. */
  drawTiles(context, width, height) {
    const base = baseLevel(this.head);
    const wanted = this.level;
    const pairs = wanted < base && hasPairs(this.head, state.quantity, state.pooling, wanted);
    // Bins reach beyond the diagonal and the last token.
    const { query, key } = this.origin;
    const point = (k, q) => [AXIS.left + (k - key) * this.zoom, AXIS.top + (q - query) * this.zoom];
    const last = this.model.tokens;
    context.save();
    context.beginPath();
    for (const [k, q] of [[0, 0], [pairs ? 0 : 1, 0], [last, last - (pairs ? 0 : 1)], [last, last], [0, last]]) context.lineTo(...point(k, q));
    context.clip();
    const pooled = Math.max(base, wanted);
    if (!this.drawLevel(context, width, height, pooled, tileValues)) {
      // Until all are there: under them those of other levels that are, the coarsest first.
      for (let at = Math.ceil(Math.log2(last)); at >= base; at--) this.drawLevel(context, width, height, at, tileThere);
      this.drawLevel(context, width, height, pooled, tileThere);
    }
    context.restore();
    if (pairs) this.drawLevel(context, width, height, wanted, tileValues);
  }

  /** Draws what there is of the tiles of a level; whether that is all in view. */
  drawLevel(context, width, height, at, valuesOf) {
    const side = TILE * 2 ** at; // in tokens
    const { query, key } = this.origin;
    const last = Math.floor((this.model.tokens - 1) / side);
    const range = (from, pixels) => [Math.max(0, Math.floor(from / side)), Math.min(last, Math.floor((from + pixels / this.zoom) / side))];
    const [firstX, lastX] = range(key, width - AXIS.left);
    const [firstY, lastY] = range(query, height - AXIS.top);
    let isWhole = true;
    for (let y = firstY; y <= lastY; y++) {
      for (let x = firstX; x <= Math.min(lastX, y); x++) {
        const values = valuesOf(this.head, state.quantity, state.pooling, at, x, y, redraw);
        if (!values) isWhole = false;
        else context.drawImage(tilePicture(values, state.scale), AXIS.left + (x * side - key) * this.zoom, AXIS.top + (y * side - query) * this.zoom, side * this.zoom, side * this.zoom);
      }
    }
    return isWhole;
  }

  /** Numbers in the cells, where there is room for them: what is told without colours. */
  drawNumbers(context, width, height) {
    if (this.zoom < CELL_WITH_NUMBER || !hasPairs(this.head, state.quantity, state.pooling, 0)) return;
    const first = this.tokensAt(AXIS.left, AXIS.top);
    const last = this.tokensAt(width - 1, height - 1);
    const { query: q0, key: k0 } = this.origin;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    for (let query = Math.max(0, first.query); query <= Math.min(last.query, this.model.tokens - 1); query++) {
      for (let key = Math.max(0, first.key); key <= Math.min(last.key, query); key++) {
        const values = tileValues(this.head, state.quantity, state.pooling, 0, Math.floor(key / TILE), Math.floor(query / TILE), redraw);
        const value = values ? values[(query % TILE) * TILE + (key % TILE)] : NaN;
        if (Number.isNaN(value)) continue;
        context.fillStyle = state.scale.ink(value);
        const text = Math.abs(value) >= 0.001 || value === 0 ? String(Number(value.toFixed(3))) : value.toExponential(0);
        context.fillText(text, AXIS.left + (key + 0.5 - k0) * this.zoom, AXIS.top + (query + 0.5 - q0) * this.zoom + 4);
      }
    }
  }

  drawCross(context, width, height) {
    const { query, key } = this.cross;
    const { query: q0, key: k0 } = this.origin;
    const side = Math.max(this.zoom, 1);
    const [x, y] = [AXIS.left + (key - k0) * this.zoom, AXIS.top + (query - q0) * this.zoom];
    // Dark on light on dark: seen on every colour.
    for (const [colour, line] of [["#000000", 3], ["#ffffff", 1]]) {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.strokeRect(x - 2, y - 2, side + 4, side + 4);
    }
    if (state.row !== null) {
      const rowY = AXIS.top + (this.at(state.row) - q0 + 0.5) * this.zoom;
      context.setLineDash([6, 4]);
      context.strokeStyle = this.ink;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(AXIS.left, rowY);
      context.lineTo(width, rowY);
      context.stroke();
      context.setLineDash([]);
    }
  }

  get cross() { return { query: this.at(state.cross.query), key: this.at(state.cross.key) }; }

  /** Regions along both axes; token numbers, or tokens where there is room. */
  drawAxes(context, width, height) {
    const paper = getComputedStyle(document.body).backgroundColor;
    context.fillStyle = paper;
    context.fillRect(0, 0, width, AXIS.top);
    context.fillRect(0, 0, AXIS.left, height);
    const { query, key } = this.origin;
    for (const [across, from, room] of [[true, key, width - AXIS.left], [false, query, height - AXIS.top]]) {
      context.save();
      context.beginPath();
      if (across) context.rect(AXIS.left, 0, room, AXIS.top);
      else context.rect(0, AXIS.top, AXIS.left, room);
      context.clip();
      this.drawRegions(context, across, from, room);
      this.drawTicks(context, across, from, room);
      context.restore();
    }
  }

  drawRegions(context, across, from, room) {
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    // Prose first: small regions are drawn wider than they are, and the answer's name comes before its neighbours'.
    const order = ["filler", "template", "question", "bos", "first", "distractor", "needle", "answer"];
    const seen = this.model.prompt.regions.filter(([, start, end]) => end > from && start < from + room / this.zoom);
    seen.sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0]));
    const ends = ([, start, end]) => {
      const a = Math.max(0, (start - from) * this.zoom);
      return [a, Math.max(Math.min(room, (end - from) * this.zoom), a + 2)];
    };
    for (const region of seen) {
      const [a, b] = ends(region);
      context.fillStyle = `#${REGIONS[region[0]]}`;
      if (across) context.fillRect(AXIS.left + a, AXIS.top - AXIS.strip, b - a, AXIS.strip - 1);
      else context.fillRect(AXIS.left - AXIS.strip, AXIS.top + a, AXIS.strip - 1, b - a);
    }
    context.fillStyle = this.ink;
    const taken = [];
    this.namesAt = []; // along the left axis
    for (const region of seen.reverse()) {
      if (region[0] === "filler" || (!across && this.zoom >= 14)) continue;
      const name = region[0] === "distractor" ? "other needle" : region[0];
      const length = across ? context.measureText(name).width + 4 : 13;
      const at = Math.min(Math.max(0, ends(region)[0]), Math.max(0, room - length));
      if (taken.some(([start, end]) => at < end && at + length > start)) continue;
      taken.push([at, at + length]);
      if (!across) this.namesAt.push(at + 6);
      if (across) context.fillText(name, AXIS.left + at, 11);
      else context.fillText(name, 1, AXIS.top + at + 10, AXIS.left - AXIS.strip - 3);
    }
  }

  drawTicks(context, across, from, room) {
    context.fillStyle = this.ink;
    const asTokens = this.zoom >= 14;
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000];
    const step = asTokens ? 1 : steps.find((step) => step * this.zoom >= 56) || 50000;
    const mono = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
    context.font = asTokens ? mono : "11px system-ui, sans-serif";
    for (let token = Math.max(0, Math.ceil(from / step) * step - (asTokens ? 1 : 0)); token < Math.min(this.model.tokens, from + room / this.zoom); token += step) {
      const middle = (token + 0.5 - from) * this.zoom;
      const text = asTokens ? this.model.text(token).trim().slice(0, 9) || "␣" : String(token);
      context.save();
      if (across) {
        context.translate(AXIS.left + middle, AXIS.top - AXIS.strip - 2);
        if (asTokens) context.rotate(-Math.PI / 3);
        context.textAlign = asTokens ? "left" : "center";
        // Numbers at the ends stay on the canvas.
        const half = context.measureText(text).width / 2;
        const inwards = asTokens ? 0 : Math.max(half - middle, 0) + Math.min(room - half - middle, 0);
        context.fillText(text, inwards, 0, asTokens ? 44 : 60);
      } else {
        context.textAlign = "right";
        const isFree = asTokens || !this.namesAt.some((at) => Math.abs(at - middle) < 14);
        if (isFree) context.fillText(text, AXIS.left - AXIS.strip - 3, AXIS.top + middle + 4, AXIS.left - AXIS.strip - 4);
      }
      context.restore();
    }
  }

  listen() {
    const { canvas } = this;
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { x, y } = point(event);
      zoomBy(this, 2 ** (-event.deltaY / 240), x, y);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, { ...point(event), moved: 0 });
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = point(event);
      const before = this.pointers.get(event.pointerId);
      if (!before) return void this.hover(now);
      if (this.pointers.size === 2) this.pinch(event.pointerId, now);
      else panBy(this, now.x - before.x, now.y - before.y);
      this.pointers.set(event.pointerId, { ...now, moved: before.moved + Math.hypot(now.x - before.x, now.y - before.y) });
    });
    const up = (event) => {
      const before = this.pointers.get(event.pointerId);
      this.pointers.delete(event.pointerId);
      if (event.type !== "pointerup" || !before || before.moved > 6) return;
      this.hover(point(event));
      takeRow();
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("focus", () => activate(this));
    canvas.addEventListener("keydown", (event) => pressed(event, this));
  }

  hover({ x, y }) {
    activate(this);
    if (x < AXIS.left || y < AXIS.top) return;
    const { query, key } = this.tokensAt(x, y);
    if (query < 0 || query >= this.model.tokens || key < 0 || key > query) return;
    moveCross(query / this.ratio, key / this.ratio, false);
  }

  pinch(id, now) {
    const [other] = [...this.pointers].filter(([pointer]) => pointer !== id).map(([, at]) => at);
    const before = this.pointers.get(id);
    const apart = (a, b) => Math.max(8, Math.hypot(a.x - b.x, a.y - b.y));
    zoomBy(this, apart(now, other) / apart(before, other), (now.x + other.x) / 2, (now.y + other.y) / 2);
    panBy(this, (now.x - before.x) / 2, (now.y - before.y) / 2);
  }
}
