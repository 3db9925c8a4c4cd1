// The page of a fleet: the answer and one table for each question. Only the first rows of a long table are made.
"use strict";

const MOST_SHOWN = 500;
const LONGEST_CELL = 300;
// A text of at most this many letters, without spaces, is not wrapped.
const LONGEST_WORD = 24;

class FleetTable {
  constructor(section, number) {
    this.data = section;
    this.sort = { column: section.sort_column, down: section.columns[section.sort_column]?.kind !== "text" };
    const isText = section.columns.map((column) => column.kind === "text");
    for (const row of section.rows) row.forEach((value, i) => isText[i] && (row[i] = plain(value ?? "")));
    this.largest = section.columns.map((column, i) => (column.kind === "bytes" ? section.rows.reduce((most, row) => Math.max(most, Math.abs(row[i] ?? 0)), 1) : 0));
    this.heads = element("tr");
    section.columns.forEach((column, i) => {
      const head = element("th", undefined, isText[i] ? "" : "number");
      head.scope = "col";
      const button = element("button", column.name);
      button.addEventListener("click", () => this.by(i));
      head.append(button);
      this.heads.append(head);
    });
    this.body = element("tbody");
    this.more = element("p", "", "soft");
    const head = element("thead");
    head.append(this.heads);
    const table = element("table");
    table.append(head, this.body);
    const wide = element("div", undefined, "wide");
    wide.append(table);
    this.place = element("section");
    this.place.id = "section-" + number;
    this.count = element("span", "", "soft");
    const title = element("h2", section.title + " ");
    title.append(this.count);
    this.place.append(title, element("p", section.explanation, "soft"), wide, this.more);
    this.wanted = "";
  }

  by(column) {
    const same = this.sort.column === column;
    this.sort = { column, down: same ? !this.sort.down : this.data.columns[column].kind !== "text" };
    this.show(this.wanted);
  }

  cell(i, value) {
    const { kind } = this.data.columns[i];
    if (kind === "text") {
      const cell = element("td", short(value, LONGEST_CELL));
      // A time, a cause or a version in two lines is hard to read; a path or a sentence may wrap.
      if (value.length <= LONGEST_WORD && !value.includes(" ")) cell.className = "word";
      if (cell.textContent !== value) cell.title = short(value, 2000);
      return cell;
    }
    if (value === null) return element("td", "–", "number");
    const cell = element("td", kind === "bytes" ? sayBytes(value) : sayCount(value), "number");
    cell.title = String(value);
    if (kind === "bytes") {
      cell.classList.add("share");
      cell.style.setProperty("--part", ((100 * Math.abs(value)) / this.largest[i]).toFixed(1) + "%");
    }
    return cell;
  }

  show(wanted) {
    this.wanted = wanted;
    const { data, sort } = this;
    const text = data.columns.map((column, i) => (column.kind === "text" ? i : -1)).filter((i) => i >= 0);
    const turn = sort.down ? -1 : 1;
    // Unknown is last, whichever way.
    const order = (a, b) => (a === b ? 0 : a === null ? 1 : b === null ? -1 : a < b ? -turn : turn);
    const rows = data.rows.filter((row) => !wanted || text.some((i) => row[i].toLowerCase().includes(wanted)));
    rows.sort((a, b) => order(a[sort.column], b[sort.column]));
    [...this.heads.children].forEach((head, i) => (i === sort.column ? head.setAttribute("aria-sort", sort.down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    this.body.replaceChildren(
      ...rows.slice(0, MOST_SHOWN).map((row) => {
        const line = element("tr");
        row.forEach((value, i) => line.append(this.cell(i, value)));
        return line;
      }),
    );
    this.count.textContent = rows.length === data.rows.length ? sayCount(rows.length) : `${sayCount(rows.length)} of ${sayCount(data.rows.length)}`;
    const more = `The first ${sayCount(MOST_SHOWN)} are shown: filter to see others.`;
    this.more.textContent = rows.length > MOST_SHOWN ? more : rows.length === 0 ? "No row contains that." : "";
  }
}

class Fleet {
  constructor(data) {
    this.dark = wantsDark();
    setTheme(this.dark);
    fillHead(data);
    this.answer(data.answer);
    this.tables = data.sections.map((section, i) => new FleetTable(section, i));
    this.tables.forEach((table) => {
      $("sections").append(table.place);
      const jump = element("a", table.data.title);
      jump.href = "#" + table.place.id;
      $("jumps").append(jump);
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
    this.show();
  }

  answer(lines) {
    const [first, ...rest] = lines;
    $("answer").append(element("p", plain(first ?? "")));
    const list = element("dl");
    for (const line of rest) {
      const [, label, text] = plain(line).match(/^\s*(\S+)\s+(.*)$/) ?? [line, "", line];
      list.append(element("dt", label), element("dd", text));
    }
    $("answer").append(list);
  }

  show() {
    const wanted = $("filter").value.toLowerCase();
    this.tables.forEach((table) => table.show(wanted));
  }
}

begin(read(), (data) => new Fleet(data));
