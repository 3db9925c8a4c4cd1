// A table that sorts and filters. Only the rows that fit a screen or ten are made.
"use strict";

const MOST_SHOWN = 2000;
const LONGEST_CELL = 300;

class Table {
  constructor(data) {
    this.data = data;
    this.sort = { column: data.sort_column, down: true };
    this.dark = wantsDark();
    setTheme(this.dark);
    fillHead(data);
    const isText = data.columns.map((column) => column.kind === "text");
    for (const row of data.rows) row.forEach((value, i) => isText[i] && (row[i] = plain(value)));
    this.largest = data.columns.map((column, i) => (column.kind === "bytes" ? data.rows.reduce((most, row) => Math.max(most, row[i]), 1) : 0));
    data.columns.forEach((column, i) => {
      const head = element("th", undefined, isText[i] ? "" : "number");
      head.scope = "col";
      const button = element("button", column.name);
      button.addEventListener("click", () => this.by(i));
      head.append(button);
      $("heads").append(head);
    });
    $("filter").addEventListener("input", () => this.show());
    $("theme").addEventListener("click", () => setTheme((this.dark = !this.dark)));
    printInLight(() => this.dark, setTheme);
    addEventListener("keydown", (event) => {
      if (event.key === "/" && event.target !== $("filter")) {
        event.preventDefault();
        $("filter").focus();
      } else if (event.key === "Escape") {
        $("filter").value = "";
        this.show();
      }
    });
    $("tools").hidden = $("heads").hidden = data.rows.length === 0;
    this.show();
  }

  by(column) {
    const same = this.sort.column === column;
    this.sort = { column, down: same ? !this.sort.down : this.data.columns[column].kind !== "text" };
    this.show();
  }

  cell(i, value) {
    const { kind } = this.data.columns[i];
    if (kind === "text") {
      const shown = shortPath(value);
      const cell = element("td", short(shown, LONGEST_CELL));
      if (cell.textContent !== value) cell.title = short(value, 2000);
      return cell;
    }
    const cell = element("td", kind === "bytes" ? sayBytes(value) : sayCount(value), "number");
    cell.title = String(value);
    if (kind === "bytes") {
      cell.classList.add("share");
      cell.style.setProperty("--part", ((100 * value) / this.largest[i]).toFixed(1) + "%");
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
        const line = element("tr");
        row.forEach((value, i) => line.append(this.cell(i, value)));
        return line;
      }),
    );
    // The first column of sizes is what each row holds by itself: it may be summed.
    const own = data.columns.findIndex((column) => column.kind === "bytes");
    const sum = own < 0 ? "" : `, ${data.columns[own].name.toLowerCase()} ${sayBytes(rows.reduce((all, row) => all + row[own], 0))}`;
    $("shown").value = `${sayCount(rows.length)} of ${sayCount(data.rows.length)} rows${sum}`;
    const more = `The first ${sayCount(MOST_SHOWN)} are shown: filter to see others.`;
    const nothing = data.rows.length === 0 ? plain(data.empty) : "No row contains that.";
    $("more").textContent = rows.length > MOST_SHOWN ? more : rows.length === 0 ? nothing : "";
  }
}

begin(read(), (data) => new Table(data));
