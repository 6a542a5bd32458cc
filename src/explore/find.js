// Search: the places of the prompt that have what was typed, marked in the text. Enter goes to the next one.

/** What was looked for last: in which prompt, the places of it, and the one that was gone to. */
const search = { prompt: null, words: "", places: [], tokens: new Set(), at: -1 };

/** A text as it is compared: in capitals, with every space the same. */
const folded = (text) => text.toUpperCase().replace(/\s/g, " ");

/** The tokens of each place of a prompt that has these words, which may begin and end within tokens; no two begin in one token. */
function placesOf(prompt, words) {
  const wanted = folded(words);
  if (!wanted) return [];
  const starts = []; // of each token in the text
  let text = "";
  for (const token of prompt.texts) {
    starts.push(text.length);
    text += folded(token);
  }
  const places = [];
  let start = 0;
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, starts[start + 1] ?? text.length)) {
    while (starts[start + 1] <= at) start += 1;
    let end = start + 1;
    while (starts[end] < at + wanted.length) end += 1;
    places.push({ start, end });
  }
  return places;
}

/** The places of what stands in the field, in the prompt of the active panel: its text is shown. */
function placesNow() {
  const { prompt } = panels[state.active].model;
  const words = byId("find").value;
  if (prompt !== search.prompt || words !== search.words) {
    const places = placesOf(prompt, words);
    const tokens = places.flatMap(({ start, end }) => Array.from({ length: end - start }, (_, i) => start + i));
    Object.assign(search, { prompt, words, places, tokens: new Set(tokens), at: -1 });
  }
  return search.places;
}

/** Marks the places in the text, and says how many there are and which one is shown. */
function showFound() {
  const { length } = placesNow();
  const where = search.at < 0 ? `${length} in the prompt` : `${search.at + 1} of ${length}`;
  byId("found").textContent = search.words === "" ? "" : length ? where : "not in the prompt";
  for (const block of byId("text").children) markBlock(block);
}

/** Frames the tokens of a block of the text that were found. */
function markBlock(block) {
  placesNow();
  const here = search.places[search.at];
  for (const span of block.querySelectorAll(".token")) {
    const token = Number(span.dataset.token);
    span.classList.toggle("found", search.tokens.has(token));
    span.classList.toggle("here", here !== undefined && token >= here.start && token < here.end);
  }
}

/** Goes to the next place, or the one before: the cross to its first token, as a key of the same query if that sees it. */
function toFound(step) {
  const { length } = placesNow();
  if (length) {
    search.at = search.at < 0 && step < 0 ? length - 1 : (search.at + step + length) % length;
    const panel = panels[state.active];
    const key = search.places[search.at].start;
    const { query } = panel.cross;
    const { window } = panel.head;
    const isSeen = key <= query && (window === null || key > query - window);
    moveCross(isSeen ? state.cross.query : key / panel.ratio, key / panel.ratio, true);
    scrollText(key);
  }
  showFound();
}

/** Listens to the field, once the texts have been read. */
function listenToSearch() {
  const field = byId("find");
  field.addEventListener("input", showFound);
  field.addEventListener("keydown", (event) => event.key === "Enter" && toFound(event.shiftKey ? -1 : 1));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select")) return;
    event.preventDefault();
    field.select();
  });
}
