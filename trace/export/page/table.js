// Tables that sort, and the filter of the functions. Everything shown is already in the page.

function keyOf(row, column) {
  const cell = row.cells[column];
  if (cell.classList.contains("absent")) {
    return null;
  }
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
}

function compared(a, b) {
  if (a === null || b === null) {
    return (a === null) - (b === null);
  }
  const areNumbers = typeof a === "number" && typeof b === "number";
  return areNumbers ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

function sortRows(table, column, isAscending) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
  rows.sort((a, b) => {
    const order = compared(a.key, b.key);
    return isAscending || a.key === null || b.key === null ? order : -order;
  });
  body.append(...rows.map(({ row }) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Figures are asked for the largest first, names for the first.
      const isNumber = head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const isAscending = before === null ? !isNumber : before === "descending";
      for (const other of table.tHead.rows[0].cells) {
        other.removeAttribute("aria-sort");
      }
      head.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
      sortRows(table, head.cellIndex, isAscending);
    });
  }
}

const filter = document.getElementById("filter");
if (filter !== null) {
  const rows = [...document.getElementById("functions-table").tBodies[0].rows];
  const shown = document.getElementById("filter-count");
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    let found = 0;
    for (const row of rows) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted)
        && !row.cells[1].textContent.toLowerCase().includes(wanted);
      found += row.hidden ? 0 : 1;
    }
    shown.textContent = `${count(found)} of ${count(rows.length)} shown`;
  });
}
