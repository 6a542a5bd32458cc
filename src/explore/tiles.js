// Maps as a pyramid of tiles: at level l a bin is 2^l tokens wide, and a tile 256 bins. From the pooled maps' bins upwards
// tiles are pooled from those; below, from token pairs where they are kept. What is not there is transparent.

const TILE = 256;

/** Tiles below this level are made of token pairs. A coarser tile would have to read too many. */
const PAIR_LEVELS = 4;

const tiles = new Cache(240);
const level = (tokens) => Math.round(Math.log2(tokens));

/** Visible pairs of the bin of `tok` tokens at (row, column). */
function visiblePairs(row, column, tok, tokens, keysSeen) {
  let pairs = 0;
  for (let query = row * tok; query < Math.min((row + 1) * tok, tokens); query++) {
    const first = keysSeen === null ? 0 : Math.max(0, query + 1 - keysSeen);
    pairs += Math.max(0, Math.min((column + 1) * tok, query + 1) - Math.max(column * tok, first));
  }
  return pairs;
}

/** A pooled map with bins twice as wide. */
function coarser(grid, pooling, tokens, keysSeen) {
  const bins = Math.ceil(grid.bins / 2);
  const values = new Float32Array((bins * (bins + 1)) / 2);
  const at = (row, column) => (row * (row + 1)) / 2 + column;
  for (let row = 0; row < bins; row++) {
    for (let column = 0; column <= row; column++) {
      let [best, sum, pairs] = [0, 0, 0];
      for (const r of [2 * row, 2 * row + 1]) {
        for (const c of [2 * column, 2 * column + 1]) {
          if (r >= grid.bins || c > r) continue;
          const value = grid.values[at(r, c)];
          if (Math.abs(value) > Math.abs(best)) best = value;
          if (pooling === "mean") {
            const n = visiblePairs(r, c, grid.tok, tokens, keysSeen);
            sum += n * value;
            pairs += n;
          }
        }
      }
      values[at(row, column)] = pooling === "mean" ? (pairs ? sum / pairs : 0) : best;
    }
  }
  return { tok: 2 * grid.tok, bins, values };
}

const grids = new Cache(64);

/** The pooled map of a level, which is not below that of the bins that were kept. */
async function pooledAt(head, quantity, pooling, at) {
  return grids.ask(`${head.id} ${quantity} ${pooling} ${at}`, async () => {
    const kept = await grids.ask(`${head.id} ${quantity} ${pooling}`, () => head.pooled(quantity, pooling));
    if (level(kept.tok) >= at) return kept;
    return coarser(await pooledAt(head, quantity, pooling, at - 1), pooling, head.model.tokens, head.window);
  });
}

/** The level of the bins that were kept of a head. */
const baseLevel = ({ detail, model }) => level(detail ? model.bin_tok : model.thumb_tok);

/** Whether only bins are kept of a kind of map, but for the rows that predict an answer. */
const isPooledOnly = (quantity) => quantity === "contribution" || quantity.startsWith("logits");

/** The first row of bins that a kind of map was worked out for. */
function firstRow(head, quantity, tok) {
  return quantity === "contribution" ? Math.floor(head.model.keep.contributions_from / tok) : 0;
}

/** Whether token pairs tell this kind of map at this level: a mean of bins would miss the weights too small to be told. */
function hasPairs(head, quantity, pooling, at) {
  return head.hasRows && !isPooledOnly(quantity) && at < PAIR_LEVELS && (at === 0 || pooling === "max");
}

/** The first bin of a row that any of its queries sees. */
const firstColumn = (head, row, tok) => (head.window === null ? 0 : Math.max(0, Math.floor((row * tok + 1 - head.window) / tok)));

/** The numbers of a pooled map that were worked out and are seen. */
function seenBins(head, quantity, { tok, bins, values }) {
  const first = firstRow(head, quantity, tok);
  if (head.window === null) return values.subarray((first * (first + 1)) / 2);
  const seen = [];
  for (let row = first; row < bins; row++) {
    const start = (row * (row + 1)) / 2;
    for (const x of values.subarray(start + firstColumn(head, row, tok), start + row + 1)) seen.push(x);
  }
  return seen;
}

/** The numbers of a tile from a pooled map. */
function pooledTile(grid, head, quantity, x, y) {
  const values = new Float32Array(TILE * TILE).fill(NaN);
  for (let row = Math.max(y * TILE, firstRow(head, quantity, grid.tok)); row < Math.min((y + 1) * TILE, grid.bins); row++) {
    for (let column = Math.max(x * TILE, firstColumn(head, row, grid.tok)); column < Math.min((x + 1) * TILE, row + 1); column++) {
      values[(row - y * TILE) * TILE + column - x * TILE] = grid.values[(row * (row + 1)) / 2 + column];
    }
  }
  return values;
}

/** Adds factor times a row of a map to a buffer that starts at key `from`. */
function addRow(buffer, rows, query, factor, from, to) {
  if (factor === 0) return;
  const row = query - rows.from;
  for (let i = rows.start[row]; i < rows.start[row + 1]; i++) {
    const key = rows.keys[i];
    if (key >= from && key < to) buffer[key - from] += factor * rows.weights[i];
  }
}

/** The numbers of a tile from token pairs: of each bin the one of largest magnitude, where all its pairs are kept. */
async function pairTile(head, quantity, at, x, y) {
  const { model } = head;
  const tok = 2 ** at;
  const [from, to] = [x * TILE * tok, Math.min((x + 1) * TILE * tok, model.tokens)];
  const [first, last] = [y * TILE * tok, Math.min((y + 1) * TILE * tok, model.tokens)];
  const values = new Float32Array(TILE * TILE);
  const [kept, seen] = [new Uint16Array(TILE * TILE), new Uint16Array(TILE * TILE)];
  const buffer = new Float32Array(Math.max(0, to - from));
  for (let query = Math.max(first, from); query < last; query++) {
    const maps = [];
    for (let map = 0; map < model.maps; map++) maps.push(await rowsAt(head, map, query));
    buffer.fill(0);
    head.mix(quantity, query).forEach((factor, map) => maps[map] && addRow(buffer, maps[map], query, factor, from, to));
    const line = ((query - first) >> at) * TILE;
    const start = head.window === null ? 0 : Math.max(0, query + 1 - head.window);
    for (let key = Math.max(from, start); key < Math.min(to, query + 1); key++) {
      const bin = line + ((key - from) >> at);
      seen[bin] += 1;
      const value = buffer[key - from];
      if (Math.abs(value) > Math.abs(values[bin])) values[bin] = value;
    }
    for (const run of maps[0].kept[query - maps[0].from]) {
      for (let key = Math.max(from, start, run * RUN); key < Math.min(to, query + 1, (run + 1) * RUN); key++) {
        kept[line + ((key - from) >> at)] += 1;
      }
    }
  }
  for (let bin = 0; bin < values.length; bin++) if (seen[bin] === 0 || kept[bin] < seen[bin]) values[bin] = NaN;
  return values;
}

/** The rows around a query, without waiting if they are there: a promise for each row would take longer than the row. */
function rowsAt(head, map, query) {
  return parts.there(`${head.id} ${map} ${Math.floor(query / contents.rows_per_part)}`) || head.askRows(map, query);
}

/** The numbers of a tile, or nothing until they are there. */
function tileValues(head, quantity, pooling, at, x, y, ready) {
  const isPairs = at < baseLevel(head) && hasPairs(head, quantity, pooling, at);
  const make = async () => (isPairs ? pairTile(head, quantity, at, x, y) : pooledTile(await pooledAt(head, quantity, pooling, at), head, quantity, x, y));
  return tiles.get(`${head.id} ${quantity} ${isPairs ? "pairs" : pooling} ${at} ${x} ${y}`, make, ready);
}

/** The numbers of a tile of pooled bins if they are there, as those of a head's small picture always are. */
function tileThere(head, quantity, pooling, at, x, y) {
  const { condition, thumb_tok } = head.model;
  const isSmall = condition === null && at === level(thumb_tok) && quantity === "effective" && pooling === "max";
  return tiles.there(`${head.id} ${quantity} ${pooling} ${at} ${x} ${y}`) || (isSmall ? pooledTile(head.thumb(), head, quantity, x, y) : undefined);
}

/** The picture of each tile on the scale it was drawn with last. */
const pictures = new WeakMap();

/** The numbers of a tile as a canvas. */
function tilePicture(values, scale) {
  const there = pictures.get(values);
  if (there && there.key === scale.key) return there.canvas;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = TILE;
  const context = canvas.getContext("2d");
  const image = context.createImageData(TILE, TILE);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = scale.pixels;
  for (let i = 0; i < values.length; i++) {
    if (!Number.isNaN(values[i])) pixels[i] = colours[scale.place(values[i])];
  }
  context.putImageData(image, 0, 0);
  pictures.set(values, { key: scale.key, canvas });
  return canvas;
}
