// The view that all panels share, the cross in it, and the keys that move them.

/** The zoom at which everything is seen. */
function fitZoom() {
  const { width, height } = panels[0].size;
  return Math.min(width - AXIS.left, height - AXIS.top) / models[0].tokens;
}

function zoomBy(panel, factor, x, y) {
  const view = state.view;
  const next = Math.min(80, Math.max(0.5 * fitZoom(), view.zoom * factor));
  const at = (offset, pixels) => offset + pixels / view.zoom - pixels / next;
  view.key = at(view.key, x - AXIS.left);
  view.query = at(view.query, y - AXIS.top);
  view.zoom = next;
  state.isFitted = false;
  keepInside();
}

function panBy(panel, dx, dy) {
  state.view.key -= dx / state.view.zoom;
  state.view.query -= dy / state.view.zoom;
  state.isFitted = false;
  keepInside();
}

/** Some of the map stays in view. */
function keepInside() {
  const { width, height } = panels[0].size;
  const view = state.view;
  const hold = (from, pixels) => {
    const seen = pixels / view.zoom;
    const spare = Math.max(0, models[0].tokens - seen);
    return Math.min(Math.max(from, -0.25 * seen), spare + 0.25 * seen);
  };
  view.key = hold(view.key, width - AXIS.left);
  view.query = hold(view.query, height - AXIS.top);
  redraw();
}

function fit() {
  state.view = { query: 0, key: 0, zoom: fitZoom() };
  state.isFitted = true;
  redraw();
}

/** Moves the cross to a pair of tokens of the first model; with `follow` the view moves too, where it has to. */
function moveCross(query, key, follow) {
  const last = models[0].tokens - 1;
  const to = Math.min(Math.max(query, 0), last);
  state.cross = { query: to, key: Math.min(Math.max(key, 0), to) };
  if (follow && !state.isFitted) {
    const { width, height } = panels[0].size;
    const view = state.view;
    const move = (from, at, pixels) => {
      const seen = pixels / view.zoom;
      const inside = at >= from + 0.05 * seen && at <= from + 0.95 * seen - 1;
      return inside ? from : at - seen / 2;
    };
    view.key = move(view.key, state.cross.key, width - AXIS.left);
    view.query = move(view.query, state.cross.query, height - AXIS.top);
    keepInside();
  }
  redraw();
  read().catch(trouble);
}

/** Goes to a pair and shows it token by token. */
function goTo(query, key, zoom = Math.max(state.view.zoom, 20)) {
  const { width, height } = panels[0].size;
  state.isFitted = false;
  state.view = { zoom, key: key - (width - AXIS.left) / zoom / 2, query: query - (height - AXIS.top) / zoom / 2 };
  keepInside();
  moveCross(query, key, false);
}

function activate(panel) {
  const before = state.active;
  state.active = panels.indexOf(panel);
  if (before !== state.active && state.row !== null) showRow().catch(trouble);
}

function pressed(event, panel) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const step = (event.shiftKey ? 10 : 1) * Math.max(1, 2 ** Math.round(Math.log2(1 / state.view.zoom)));
  const { query, key } = state.cross;
  const middle = () => {
    const { width, height } = panel.size;
    const x = AXIS.left + (key - state.view.key) * state.view.zoom;
    const y = AXIS.top + (query - state.view.query) * state.view.zoom;
    return [Math.min(Math.max(x, AXIS.left), width), Math.min(Math.max(y, AXIS.top), height)];
  };
  const actions = {
    ArrowLeft: () => moveCross(query, key - step, true),
    ArrowRight: () => moveCross(query, key + step, true),
    ArrowUp: () => moveCross(query - step, key, true),
    ArrowDown: () => moveCross(query + step, key, true),
    "+": () => zoomBy(panel, 2, ...middle()),
    "=": () => zoomBy(panel, 2, ...middle()),
    "-": () => zoomBy(panel, 0.5, ...middle()),
    0: fit,
    Enter: takeRow,
    a: toAnswer,
    s: toSink,
    n: toKey,
    m: nextQuantity,
    h: () => nextHead(panel),
    t: nextTreatment,
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function nextHead(panel) {
  const names = [...panel.model.kept];
  if (names.length) panel.show(panel.named(names[(names.indexOf(panel.head.name) + 1) % names.length]));
}
