// Adds to the report page what it does without well enough: a read-out that follows the pointer
// over the plots, and tables that sort. Everything shown is already in the page.
"use strict";

// Read-outs: the browser's own tooltip of an SVG title is slow to come and hard to read.
const reading = document.createElement("div");
reading.id = "reading";
reading.hidden = true;
document.body.append(reading);

for (const title of document.querySelectorAll("svg .mark > title, svg rect > title")) {
  const mark = title.parentNode;
  mark.dataset.reading = title.textContent;
  mark.setAttribute("aria-label", title.textContent);
  title.remove();
}
for (const title of document.querySelectorAll("svg > title")) {
  title.remove(); // the label of the element says the same to a screen reader
}

document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest("[data-reading]");
  reading.hidden = mark === null;
  if (mark === null) {
    return;
  }
  reading.textContent = mark.dataset.reading;
  const room = reading.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, window.innerWidth - room.width - 8);
  const below = event.clientY + 18;
  const top = below + room.height > window.innerHeight ? event.clientY - room.height - 8 : below;
  reading.style.left = `${Math.max(left, 4)}px`;
  reading.style.top = `${top}px`;
});

// Sorting: by the value behind a figure where there is one, else by its words; dashes go last.
function keyOf(row, column) {
  const cell = row.cells[column];
  if (cell.classList.contains("absent")) {
    return null;
  }
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
}

function compare(a, b) {
  if (a === null || b === null) {
    return (a === null) - (b === null);
  }
  const areNumbers = typeof a === "number" && typeof b === "number";
  return areNumbers ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

function sort(table, column, isAscending) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
  rows.sort((a, b) => {
    const order = compare(a.key, b.key);
    return isAscending || a.key === null || b.key === null ? order : -order;
  });
  for (const { row } of rows) {
    row.classList.remove("opens");
    body.append(row);
  }
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const isAscending = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) {
        other.removeAttribute("aria-sort");
      }
      head.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
      sort(table, head.cellIndex, isAscending);
    });
  }
}
