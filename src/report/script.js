// Headings of tables become buttons that sort their column: up, down, up. Without this script the tables just stand.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      rows.sort((a, b) => compare(a.cells[column], b.cells[column], down ? -1 : 1));
      body.append(...rows);
    });
  });
}

// Numbers by value, words by alphabet, words after numbers; dashes stay last in both directions.
function compare(a, b, direction) {
  const rank = (cell) => ("value" in cell.dataset ? 0 : cell.textContent === "-" ? 2 : 1);
  if (rank(a) !== rank(b)) return rank(a) - rank(b);
  if (rank(a) === 0) return direction * (Number(a.dataset.value) - Number(b.dataset.value));
  return direction * a.textContent.localeCompare(b.textContent, "en", { numeric: true });
}
