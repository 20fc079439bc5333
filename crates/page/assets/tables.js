// Tables that sort: by the value behind a figure where there is one, else by its words. Everything shown is already in
// the page.

function keyOf(row, column) {
  const cell = row.cells[column];
  if (cell === undefined || cell.classList.contains("absent")) {
    return null;
  }
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
}

function compared(a, b) {
  const areNumbers = typeof a === "number" && typeof b === "number";
  return areNumbers ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

function sortRows(body, column, isAscending) {
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
  rows.sort((a, b) => {
    if (a.key === null || b.key === null) {
      return (a.key === null) - (b.key === null); // dashes go last, whichever way
    }
    return isAscending ? compared(a.key, b.key) : compared(b.key, a.key);
  });
  body.append(...rows.map(({ row }) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const asWritten = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort; a third time: as written";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Figures are asked for the largest first, names for the first; the third time gives back the order of the page.
      const turns = head.classList.contains("number") ? ["descending", "ascending"] : ["ascending", "descending"];
      const next = turns[turns.indexOf(head.getAttribute("aria-sort")) + 1];
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      table.classList.toggle("sorted", next !== undefined);
      if (next === undefined) {
        body.append(...asWritten);
      } else {
        head.setAttribute("aria-sort", next);
        sortRows(body, head.cellIndex, next === "ascending");
      }
    });
  }
}
