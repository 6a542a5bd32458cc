// Colours. The same as in the figures: viridis for magnitudes, blue - white - red for signed numbers; and greys, in which
// lightness alone tells numbers apart. What a treatment changes has colours of its own: purple less, green more.

const STOPS = {
  sequential: ["440154", "482475", "414487", "355f8d", "2a788e", "21918c", "22a884", "44bf70", "7ad151", "bddf26", "fde725"],
  diverging: ["025097", "186cbd", "4988d5", "75a5e7", "a2c3f3", "d0e1fa", "ffffff", "ffd7d1", "feaca1", "f68173", "e15b4d", "c4362d", "a10f12"],
  difference: ["4a1263", "7b3f97", "a878bd", "cfb2dc", "ebe0f0", "ffffff", "dcefdc", "aedcae", "6fbf78", "2f9149", "0a5c2b"],
  // Zero has the colour of the page, which is dark where the theme is.
  divergingDark: ["a8d1ff", "79b8ff", "4f8fd6", "2f66a6", "1c4270", "142740", "0d1117", "3a1a17", "6e2a22", "a83f33", "d9604f", "ff8a75", "ffc4b8"],
  differenceDark: ["e6c9f5", "c48fe0", "955cb3", "643a7d", "352043", "0d1117", "15351c", "1f5f30", "319049", "62c07a", "b5ecc2"],
  greySequential: ["ffffff", "000000"],
  greyDiverging: ["000000", "ffffff"],
};

const REGIONS = {
  bos: "4a4a55", first: "4a4a55", template: "d6d6d6", filler: "aeaeae", distractor: "bf8a2b", needle: "9cc9e6", answer: "0072b2", question: "e3c3d6",
};

const channels = (hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** 256 colours, as a list of red, green, blue. */
function ramp(stops) {
  const colours = stops.map(channels);
  const out = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (colours.length - 1);
    const below = Math.min(Math.floor(place), colours.length - 2);
    for (let c = 0; c < 3; c++) out[3 * i + c] = colours[below][c] + (place - below) * (colours[below + 1][c] - colours[below][c]);
  }
  return out;
}
/** The same as pixels of a canvas. */
function pixelsOf(ramp) {
  const bytes = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i++) bytes.set([ramp[3 * i], ramp[3 * i + 1], ramp[3 * i + 2], 255], 4 * i);
  return new Uint32Array(bytes.buffer);
}

const RAMPS = Object.fromEntries(Object.entries(STOPS).map(([name, stops]) => [name, ramp(stops)]));

const PIXELS = Object.fromEntries(Object.entries(RAMPS).map(([name, ramp]) => [name, pixelsOf(ramp)]));

/** Whether colours are seen on a dark page. */
let isDark = false;
function readTheme() {
  isDark = window.matchMedia("(prefers-color-scheme: dark)").matches && !window.matchMedia("print").matches;
}
readTheme();

/** How many factors of two a logarithmic scale shows: about as many as the 127 steps of pooled maps, below which they are 0. */
const OCTAVES = 7;

/** The largest magnitude of some numbers, where a linear scale of them ends (a few sinks do not take all its colours), and
 * whether that leaves a map white, having next to nothing beyond its first colours. The same rule as in colour_scale.rs. */
function fitted(arrays) {
  const sizes = new Float32Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let end = 0;
  for (const numbers of arrays) sizes.set(numbers, (end += numbers.length) - numbers.length);
  sizes.forEach((x, i) => (sizes[i] = Math.abs(x)));
  sizes.sort();
  const most = sizes.at(-1) || 1;
  const quantile = sizes[Math.ceil(0.995 * sizes.length) - 1];
  const top = quantile > 0 && most > 2 * quantile ? quantile : most;
  return { most, top, isWhite: sizes.length >= 3200 && sizes[Math.floor(0.75 * sizes.length)] <= 0.05 * top };
}

/** Whether colours of numbers so fitted are logarithmic: where a linear scale shows next to nothing, or as the box says. */
const isLog = ({ isWhite }) => state.log ?? isWhite;

/** Where they end: a logarithmic scale, which has room below, at a quarter of the largest. */
const endOf = (fit) => (isLog(fit) ? fit.most / 4 : fit.top);

/** From numbers to colours: up to `top` in size, with signs or without. */
class Scale {
  constructor(top, isSigned, log, palette, isDifference = false) {
    Object.assign(this, { top, isSigned, log, palette });
    const isGrey = palette === "grey";
    const name = isSigned ? (isGrey ? "greyDiverging" : isDifference ? "difference" : "diverging") : isGrey ? "greySequential" : "sequential";
    this.names = [name, `${name}Dark` in RAMPS ? `${name}Dark` : name];
  }
  get name() { return this.names[Number(isDark)]; }
  get ramp() { return RAMPS[this.name]; }
  get pixels() { return PIXELS[this.name]; }
  get key() { return [this.top, this.log, this.name].join(" "); }
  /** Where a number lies, from 0 to 255. */
  place(x) {
    let size = Math.min(Math.abs(x) / this.top, 1);
    if (this.log) size = size > 0 ? Math.max(0, 1 + Math.log2(size) / OCTAVES) : 0;
    if (!this.isSigned) return Math.round(255 * (x > 0 ? size : 0));
    return Math.round(127.5 + 127.5 * (x < 0 ? -size : size));
  }
  css(x) {
    const at = 3 * this.place(x);
    return `rgb(${this.ramp[at]}, ${this.ramp[at + 1]}, ${this.ramp[at + 2]})`;
  }
  /** Black or white, whichever reads better on the colour of a number. */
  ink(x) {
    const at = 3 * this.place(x);
    const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const light = 0.2126 * linear(this.ramp[at]) + 0.7152 * linear(this.ramp[at + 1]) + 0.0722 * linear(this.ramp[at + 2]);
    return light > 0.22 ? "#1a1a1a" : "#ffffff";
  }
  /** Ground and ink of a label. */
  label(x) {
    return [this.css(x), this.ink(x)];
  }
  /** Draws the scale with its ends. */
  draw(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [220, 34];
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    for (let x = 0; x < width; x++) {
      const at = 3 * Math.round((x / (width - 1)) * 255);
      context.fillStyle = `rgb(${this.ramp[at]}, ${this.ramp[at + 1]}, ${this.ramp[at + 2]})`;
      context.fillRect(x, 0, 1, 16);
    }
    context.fillStyle = getComputedStyle(document.body).color;
    context.font = "12px system-ui, sans-serif";
    const low = this.log ? this.top * 2 ** -OCTAVES : 0;
    const ends = this.isSigned ? [short(-this.top), "0", short(this.top)] : [low === 0 ? "0" : `≤ ${short(low)}`, "", short(this.top)];
    ends.forEach((text, i) => {
      context.textAlign = ["left", "center", "right"][i];
      context.fillText(text, (i * width) / 2, 30);
    });
  }
}
