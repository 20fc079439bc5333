// The filter of the functions table.

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
    shown.textContent = found === 0 ? "no function and no layer of that name" : `${count(found)} of ${count(rows.length)} shown`;
  });
  leaveSearch(filter, document.getElementById("functions-table").parentElement);
}
