// Headings of tables become buttons that sort their column: up, down, and back to the order of the report. A table is one
// tab stop: arrow keys go from heading to heading. Without this script the tables just stand, and scroll.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const scroll = table.parentElement;
  const hint = scroll.previousElementSibling;
  const sorts = table.tBodies[0].rows.length > 1;
  if (sorts) makeSortable(table);
  const tell = () => {
    const isWide = table.scrollWidth > scroll.clientWidth + 1;
    // A table without buttons is scrolled by keys itself.
    if (isWide && !sorts) scroll.tabIndex = 0;
    else scroll.removeAttribute("tabindex");
    const words = [isWide ? `${table.tHead.rows[0].cells.length} columns: the table scrolls sideways.` : "", sorts ? "Headings sort: up, down, back." : ""];
    hint.textContent = words.filter(Boolean).join(" ");
    hint.hidden = hint.textContent === "";
  };
  new ResizeObserver(tell).observe(scroll);
  tell();
}

for (const scroll of document.querySelectorAll("figure .scroll")) {
  const hint = scroll.parentElement.querySelector(".hint");
  const tell = () => {
    hint.hidden = scroll.scrollWidth <= scroll.clientWidth + 1;
  };
  new ResizeObserver(tell).observe(scroll);
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const before = [...body.rows];
  const buttons = heads.map((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.tabIndex = column === 0 ? 0 : -1;
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(head, column));
    button.addEventListener("keydown", (event) => {
      const to = { ArrowRight: column + 1, ArrowLeft: column - 1, Home: 0, End: heads.length - 1 }[event.key];
      if (to === undefined || !buttons[to]) return;
      event.preventDefault();
      buttons.forEach((other, i) => (other.tabIndex = i === to ? 0 : -1));
      buttons[to].focus();
    });
    return button;
  });
  function sort(head, column) {
    const next = { null: "ascending", ascending: "descending", descending: null }[head.getAttribute("aria-sort")];
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    if (next) head.setAttribute("aria-sort", next);
    const direction = next === "descending" ? -1 : 1;
    body.append(...(next ? [...before].sort((a, b) => compare(a.cells[column], b.cells[column], direction)) : before));
  }
}

// Numbers by value, words by alphabet, words after numbers; dashes stay last in both directions.
function compare(a, b, direction) {
  const rank = (cell) => ("value" in cell.dataset ? 0 : cell.textContent === "-" ? 2 : 1);
  if (rank(a) !== rank(b)) return rank(a) - rank(b);
  if (rank(a) === 0) return direction * (Number(a.dataset.value) - Number(b.dataset.value));
  return direction * a.textContent.localeCompare(b.textContent, "en", { numeric: true });
}

// The target of a link may be folded away.
function unfold() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.closest("details:not([open])");
  if (!folded) return;
  folded.open = true;
  target.scrollIntoView();
}
window.addEventListener("hashchange", unfold);
unfold();
