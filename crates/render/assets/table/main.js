// A table that sorts and filters. Text from the recording goes in as text only; only the rows that fit a screen or ten are made.
"use strict";

const $ = (id) => document.getElementById(id);
const MOST_SHOWN = 2000;

class Table {
  constructor(data) {
    this.data = data;
    this.sort = { column: data.sort_column, down: true };
    $("title").textContent = data.title;
    $("subtitle").textContent = data.subtitle;
    for (const note of data.notes) $("notes").append(Object.assign(document.createElement("p"), { textContent: note }));
    data.columns.forEach((column, i) => {
      const head = document.createElement("th");
      head.scope = "col";
      if (column.kind !== "text") head.className = "number";
      const button = Object.assign(document.createElement("button"), { textContent: column.name });
      button.addEventListener("click", () => this.by(i));
      head.append(button);
      $("heads").append(head);
    });
    $("filter").addEventListener("input", () => this.show());
    addEventListener("keydown", (event) => {
      if (event.key === "/" && event.target !== $("filter")) {
        event.preventDefault();
        $("filter").focus();
      }
    });
    this.show();
  }

  by(column) {
    const same = this.sort.column === column;
    this.sort = { column, down: same ? !this.sort.down : this.data.columns[column].kind !== "text" };
    this.show();
  }

  cell(column, value) {
    const cell = document.createElement("td");
    if (column.kind === "bytes") cell.textContent = sayBytes(value);
    else if (column.kind === "count") cell.textContent = sayCount(value);
    else cell.textContent = value;
    if (column.kind !== "text") {
      cell.className = "number";
      cell.title = String(value);
    }
    return cell;
  }

  show() {
    const { data, sort } = this;
    const wanted = $("filter").value.toLowerCase();
    const text = data.columns.map((column, i) => (column.kind === "text" ? i : -1)).filter((i) => i >= 0);
    let rows = data.rows.filter((row) => !wanted || text.some((i) => row[i].toLowerCase().includes(wanted)));
    const turn = sort.down ? -1 : 1;
    rows = rows.slice().sort((a, b) => (a[sort.column] < b[sort.column] ? -turn : a[sort.column] > b[sort.column] ? turn : 0));
    [...$("heads").children].forEach((head, i) => (i === sort.column ? head.setAttribute("aria-sort", sort.down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    $("rows").replaceChildren(
      ...rows.slice(0, MOST_SHOWN).map((row) => {
        const line = document.createElement("tr");
        row.forEach((value, i) => line.append(this.cell(data.columns[i], value)));
        return line;
      }),
    );
    $("shown").value = `${sayCount(rows.length)} of ${sayCount(data.rows.length)} rows`;
    $("more").textContent = rows.length > MOST_SHOWN ? `The first ${sayCount(MOST_SHOWN)} are shown: filter to see others.` : rows.length === 0 ? data.empty : "";
  }
}

read()
  .then((data) => {
    window.stormlog = new Table(data);
    document.documentElement.dataset.ready = "yes";
  })
  .catch((error) => ($("more").textContent = "This page cannot show its data: " + error.message));
