// The data of the page: words as JSON, numbers as deflated bytes in base64 (their formats are in codes.rs and pack.rs). Data
// that are seen first stand before this script; all others after it, and are decoded when they are looked at.

performance.mark("script");
const byId = (id) => document.getElementById(id);
const contents = JSON.parse(byId("contents").textContent);

/** Keys that share a step. */
const RUN = 64;

/** The text of an element, once the browser has read it: of a blob base64 of deflated parts, one after the other. */
const texts = new Map();
async function blobText(id) {
  // The page is still being read, and an element without successor may not be complete.
  while (document.readyState === "loading" && !(byId(id) && byId(id).nextElementSibling)) await new Promise((done) => setTimeout(done, 20));
  if (!texts.has(id)) texts.set(id, byId(id).textContent);
  return texts.get(id);
}

/** The tokens of the prompts: not needed to see the maps. */
async function readTexts() {
  for (const [i, prompt] of contents.prompts.entries()) {
    prompt.texts = JSON.parse(await blobText(`texts-${i}`));
    texts.delete(`texts-${i}`);
  }
}

/** A blob that is not deflated: what is seen first. It stands before this script, so that nothing is waited for. */
const plainBytes = new Map();
function plain(id) {
  if (!plainBytes.has(id)) plainBytes.set(id, Uint8Array.from(atob(byId(id).textContent), (c) => c.charCodeAt(0)));
  return plainBytes.get(id);
}

/** A part of a blob, inflated. Of the text only the part is decoded: four letters for three bytes. */
async function inflate(id, [offset, length]) {
  const letters = (await blobText(id)).slice(4 * Math.floor(offset / 3), 4 * Math.ceil((offset + length) / 3));
  const text = atob(letters);
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = text.charCodeAt((offset % 3) + i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const signed = (byte) => (byte << 24) >> 24;

/** The map below the diagonal of `bins` rows: exponents of its runs, then codes with signs. Row r begins at r (r + 1) / 2. */
function triangle(bytes) {
  const runsOf = (row) => Math.floor(row / RUN) + 1;
  let [bins, runs, cells] = [0, 0, 0];
  while (runs + cells < bytes.length) {
    runs += runsOf(bins);
    bins += 1;
    cells += bins;
  }
  const values = new Float32Array(cells);
  for (let row = 0, run = 0, cell = 0; row < bins; row++) {
    for (let column = 0; column <= row; column += RUN, run++) {
      const step = 2 ** signed(bytes[run]);
      for (const end = cell + Math.min(RUN, row + 1 - column); cell < end; cell++) {
        values[cell] = signed(bytes[runs + cell]) * step;
      }
    }
  }
  return { bins, values };
}

/** The runs of a query that are kept, rising; the same rule as in stored_pairs.rs. */
function keptRuns(keep, query, window) {
  const first = window === null ? 0 : Math.floor(Math.max(0, query + 1 - window) / RUN);
  const last = Math.floor(query / RUN);
  const runs = [];
  let near = first;
  if (!keep.complete && query < keep.rows_from) {
    near = Math.max(first, Math.floor(Math.max(0, query - keep.band) / RUN));
    for (const run of keep.columns) if (run >= first && run < near) runs.push(run);
  }
  for (let run = near; run <= last; run++) runs.push(run);
  return runs;
}

/** Some rows of a softmax map: for each the keys with a weight that can be told, and the steps of its runs. */
function pairRows(bytes, keep, window, from, to) {
  const counts = new DataView(bytes.buffer, bytes.byteOffset, 8);
  const [runs, gapBytes] = [counts.getUint32(0, true), counts.getUint32(4, true)];
  const gaps = 8 + runs;
  const codes = gaps + gapBytes;
  const n = bytes.length - codes;
  const rows = { from, start: new Uint32Array(to - from + 1), keys: new Uint32Array(n), weights: new Float32Array(n), kept: [], steps: [] };
  let [gap, found, run] = [0, 0, 0];
  let next = 0; // place of the next code that is not 0, from the first pair of these rows
  const advance = () => {
    let zeros = 0;
    if (gap >= gapBytes) return Infinity;
    while (bytes[gaps + gap] === 255) { zeros += 255; gap++; }
    return zeros + bytes[gaps + gap++];
  };
  next = advance();
  let place = 0;
  for (let query = from; query < to; query++) {
    rows.start[query - from] = found;
    const kept = keptRuns(keep, query, window);
    const steps = [];
    for (const first of kept) {
      const end = place + Math.min(RUN, query + 1 - first * RUN);
      const step = 2 ** signed(bytes[8 + run++]);
      steps.push(step);
      while (next < end) {
        rows.keys[found] = first * RUN + next - place;
        rows.weights[found] = bytes[codes + found] * step;
        found += 1;
        next += 1 + advance();
      }
      place = end;
    }
    rows.kept.push(kept);
    rows.steps.push(steps);
  }
  rows.start[to - from] = found;
  return rows;
}

/** A cache of promises and what they came to; the oldest go when there are more than `most`. */
class Cache {
  constructor(most) { this.most = most; this.map = new Map(); }
  /** What is there, or nothing; if it is not, it is made and `ready` is called when it is. */
  get(key, make, ready) {
    const value = this.there(key);
    if (value === undefined) {
      this.ask(key, make).then(ready, trouble);
      return undefined;
    }
    const entry = this.map.get(key);
    this.map.delete(key); // to the end of the queue
    this.map.set(key, entry);
    return value;
  }
  /** What is there, without asking for it. */
  there(key) { return this.map.get(key)?.value; }
  /** The promise of it. */
  ask(key, make) {
    let entry = this.map.get(key);
    if (!entry) {
      entry = { value: undefined, promise: undefined };
      entry.promise = Promise.resolve().then(make).then((value) => (entry.value = value));
      this.map.set(key, entry);
      if (this.map.size > this.most) this.map.delete(this.map.keys().next().value);
    }
    return entry.promise;
  }
}

const parts = new Cache(400);

/** A head of a model. Those that were not kept token by token have a small picture of their effective map, and no more. */
class Head {
  constructor(model, index) {
    this.model = model;
    const { layer, head, sinks } = model.heads[index];
    Object.assign(this, { index, layer, head, sinks });
    this.name = `${layer}.${head}`;
    this.numbers = model.numbersOf(this.name);
    const place = model.details.findIndex((detail) => detail.layer === layer && detail.head === head);
    this.detail = place < 0 ? null : model.details[place];
    this.id = `${model.index}-${this.name}`;
    this.isFirst = place === 0 && model.condition === null; // its pooled effective map is seen first
    this.blob = `blob-${model.index}-${place}`;
    this.pairs = `pairs-${model.index}-${place}`;
    this.hasRows = this.detail !== null && this.detail.index.maps.length > 0; // token pairs of all rows: not of treated passes
    this.window = this.detail ? this.detail.window : null;
    this.lambdas = null;
    this.taken = null;
  }

  /** What is needed before any row is read: weights of the second map, and what sinks take of each row. */
  async load() {
    if (!this.detail || this.taken) return;
    const { lambdas, taken } = this.detail.index;
    const floats = async (place) => new Float32Array((await inflate(this.blob, place)).buffer);
    if (lambdas) this.lambdas = await floats(lambdas);
    this.taken = await Promise.all(taken.map(floats));
  }

  /** Whether it has maps of this kind: "effective", "a1", "a2", "la2", "contribution", "logits1", "logits2". */
  has(quantity) {
    if (!this.detail) return quantity === "effective";
    return this.grid(quantity, "max") !== null;
  }

  /** Where a pooled map is. Of a model with one map, its mixture is its first map. */
  grid(quantity, pooling) {
    const kind = this.model.maps === 1 && quantity === "a1" ? "effective" : quantity;
    const found = this.detail.index.grids.find(([what, how]) => what === kind && how === pooling);
    return found ? found[2] : null;
  }

  /** The small picture of its effective map, a pooled map: those of a model stand one after the other, and are of one size. */
  thumb() {
    const all = plain(`thumbs-${this.model.index}`);
    const each = all.length / this.model.all.length;
    return { tok: this.model.thumb_tok, ...triangle(all.subarray(this.index * each, (this.index + 1) * each)) };
  }

  /** A pooled map and the tokens of its bins. */
  async pooled(quantity, pooling) {
    if (!this.detail) return this.thumb();
    const bytes = this.isFirst && quantity === "effective" && pooling === "max" ? plain(`first-${this.model.index}`) : await inflate(this.blob, this.grid(quantity, pooling));
    return { tok: this.model.bin_tok, ...triangle(bytes) };
  }

  /** The rows of softmax map `map` around a query, or nothing until they are there. */
  rows(map, query, ready) {
    const part = Math.floor(query / contents.rows_per_part);
    return parts.get(`${this.id} ${map} ${part}`, () => this.readRows(map, part), ready);
  }

  askRows(map, query) {
    const part = Math.floor(query / contents.rows_per_part);
    return parts.ask(`${this.id} ${map} ${part}`, () => this.readRows(map, part));
  }

  async readRows(map, part) {
    await this.load();
    const from = part * contents.rows_per_part;
    const to = Math.min(from + contents.rows_per_part, this.model.keep.tokens);
    return pairRows(await inflate(this.pairs, this.detail.index.maps[map][part]), this.model.keep, this.window, from, to);
  }

  lambda(query) { return this.lambdas ? this.lambdas[query] : 0; }

  /** What each softmax map counts for in a quantity, at a query. */
  mix(quantity, query) {
    if (quantity === "a1") return [1, 0];
    if (quantity === "a2") return [0, 1];
    if (quantity === "la2") return [0, this.lambda(query)];
    return [1, this.model.maps > 1 ? -this.lambda(query) : 0];
  }

  /** An answer's row of a softmax map ("answers"), of its logits ("logits") or of its keys' contributions, in 16 bits: numbers and steps by key; nothing for other rows. */
  async fine(kind, map, query) {
    if (!this.detail || !this.model.predicts(query)) return null;
    const bytes = await parts.ask(`${this.id} ${kind} ${map}`, () => inflate(this.blob, this.detail.index[kind][map]));
    const rows = this.model.answerRows().map((row) => ({ row, runs: keptRuns(this.model.keep, row, this.window) }));
    const lengths = ({ row, runs }) => runs.map((first) => Math.min(RUN, row + 1 - first * RUN));
    const exponents = rows.reduce((sum, { runs }) => sum + runs.length, 0);
    const codes = (bytes.length - exponents) / 2;
    let [run, code] = [0, 0];
    for (const each of rows) {
      const of = lengths(each);
      if (each.row === query) {
        const [values, steps] = [new Float32Array(query + 1).fill(NaN), new Float32Array(query + 1)];
        of.forEach((length, i) => {
          const step = 2 ** signed(bytes[run + i]);
          for (let at = 0; at < length; at++, code++) {
            const key = each.runs[i] * RUN + at;
            values[key] = ((signed(bytes[exponents + codes + code]) << 8) | bytes[exponents + code]) * step;
            steps[key] = step;
          }
        });
        return { values, steps };
      }
      run += of.length;
      code += of.reduce((sum, length) => sum + length, 0);
    }
    return null;
  }
}

/** A model with its heads and its prompt, as it is (`condition` is null) or under a treatment. */
class Model {
  constructor(data, index) {
    Object.assign(this, data, { index, prompt: contents.prompts[data.prompt] });
    this.tokens = this.keep.tokens;
    this.variants = new Map([["", this]]); // by condition
    this.all = data.heads.map((_, i) => new Head(this, i));
    this.names = new Map(this.all.map((head) => [head.name, head]));
    const kept = data.details.map(({ layer, head }) => `${layer}.${head}`);
    this.best = this.names.get(kept[0]) || this.all[0];
    this.kept = new Set(kept);
  }
  /** What is known of a head by its name. Of a single map shares have one reading, whatever the signs. */
  numbersOf(name) {
    const numbers = { ...this.numbers[name] };
    if (this.maps === 1) numbers["share_signed answer"] = numbers["share_abs answer"];
    return numbers;
  }
  /** The rows that predict an answer, each once. */
  answerRows() {
    const all = this.keep.answer_rows.flatMap(({ start, end }) => Array.from({ length: end - start }, (_, i) => start + i));
    return [...new Set(all)].sort((a, b) => a - b);
  }
  predicts(query) { return this.keep.answer_rows.some(({ start, end }) => query >= start && query < end); }
  /** A token as it can be shown; until the texts have been read there is only its number. */
  text(token) { return this.prompt.texts ? visible(this.prompt.texts[token]) : "…"; }
  /** The name of the region of a token. */
  region(token) {
    const found = this.prompt.regions.find(([, start, end]) => token >= start && token < end);
    return found ? found[0] : "";
  }
}

/** Text as it can be shown: what has no shape, or turns the direction of writing, by its number. */
function visible(text) {
  const hidden = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
  return text.replace(hidden, (c) => (c === "\n" ? "⏎" : c === "\t" ? "⇥" : `‹${c.charCodeAt(0).toString(16).padStart(4, "0")}›`));
}

/** A number with as many digits as it takes. */
function short(x) {
  if (!Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return x.toExponential(2);
  return x.toFixed(size < 0.1 ? 5 : size < 10 ? 4 : 2);
}

/** A share in percent; nothing measured is a dash, and nothing has no sign. */
const percent = (x) => (x === undefined ? "–" : `${(100 * x).toFixed(1).replace(/^-(0\.0)$/, "$1")} %`);

function trouble(error) {
  const note = byId("trouble");
  note.hidden = false;
  note.textContent = `The page cannot show this: ${error && error.message ? error.message : error}`;
  throw error;
}
