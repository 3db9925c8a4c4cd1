// The parts of the report that are words: the answer, findings, processes and ranks, environment, events. Text of a recording goes in as text only.
"use strict";

const MOST_TEXT = 4000;
const words = (text) => short(plain(text), MOST_TEXT);

/** An element with a text in which what stands between backticks is code. */
function rich(tag, text, className) {
  const made = element(tag, undefined, className);
  words(text)
    .split("`")
    .forEach((part, i, all) => made.append(i % 2 === 1 && i < all.length - 1 ? element("code", part) : i % 2 === 1 ? "`" + part : part));
  return made;
}

/** The answer: its first line is a sentence; the others have a label of nine letters after two spaces. */
function fillAnswer({ headline, severity }) {
  const box = $("answer");
  box.hidden = headline.length === 0;
  if (severity) box.classList.add(severity);
  const list = element("dl");
  headline.forEach((line, i) => {
    const parts = i > 0 ? line.match(/^ {2}(.{9}) (.*)$/su) : null;
    if (i === 0) box.append(element("p", words(line)));
    else list.append(element("dt", parts ? plain(parts[1]).trim() : ""), element("dd", words(parts ? parts[2] : line.trim())));
  });
  box.append(list);
}

function fillFindings(page) {
  const { findings } = page.data;
  $("finding-count").textContent = findings.length ? `(${findings.length})` : "";
  const none = element("p", "Nothing was found that needs attention.", "soft");
  const cards = findings.map((finding) => {
    const card = element("article", undefined, "finding " + finding.severity);
    const head = element("h3");
    head.append(element("span", finding.undecided ? "undecided" : finding.severity, "badge " + finding.severity), words(finding.title));
    card.append(head);
    const about = [finding.place, finding.holder, `confidence ${finding.confidence.toFixed(2)}`].filter(Boolean).map(words);
    const line = element("p", about.join(" · "), "soft");
    if (finding.span) {
      const [from, to] = finding.span;
      const button = element("button", `${sayTime(from)} to ${sayTime(to)}`, "plain");
      button.addEventListener("click", () => page.showSpan(from, to));
      line.append(" · ", button);
    }
    card.append(line);
    if (finding.message) card.append(rich("p", finding.message));
    const list = (tag, texts) => {
      const made = element(tag);
      made.append(...texts.map((text) => rich("li", text)));
      return made;
    };
    if (finding.advice.length) card.append(list("ol", finding.advice));
    if (finding.evidence.length) {
      const more = element("details");
      more.append(element("summary", "Evidence"), list("ul", finding.evidence));
      card.append(more);
    }
    return card;
  });
  $("finding-list").replaceChildren(...(cards.length ? cards : [none]));
}

function fillProcesses(page) {
  const { processes } = page.data;
  const isJob = processes.some((process) => process.rank !== null) && processes.length > 1;
  $("processes-title").textContent = isJob ? "Processes and ranks" : processes.length === 1 ? "Process" : `Processes (${processes.length})`;
  const table = element("table");
  const head = element("tr");
  for (const [name, kind] of [["process", ""], ["ended", ""], ["peak", "number"], ["what held it", ""]]) head.append(element("th", name, kind));
  table.append(element("thead"));
  table.firstChild.append(head);
  const body = element("tbody");
  // Ranks in their order; other processes as the report has them.
  const order = processes.map((_, index) => index).sort((a, b) => (processes[a].rank ?? -1) - (processes[b].rank ?? -1) || a - b);
  order.forEach((index) => {
    const process = processes[index];
    const row = element("tr", undefined, process.outlier ? "odd" : "");
    const name = element("td");
    const button = element("button", processWords(process), "plain");
    button.addEventListener("click", () => page.choose(index));
    name.append(button);
    if (process.outlier) name.append(element("p", words(process.outlier), "outlier"));
    const ended = element("td");
    ended.append(element("span", process.ended, "badge " + process.ended), words(process.what_happened));
    const peak = element("td", process.peak_bytes === null ? "" : sayBytes(process.peak_bytes), "number");
    for (const [device, bytes] of process.devices) peak.append(element("br"), `${plain(device)} ${sayBytes(bytes)}`);
    const held = element("td");
    for (const one of process.held) held.append(element("div", `${sayBytes(one.bytes)}  ${one.memory === "host" ? "" : plain(one.memory) + "  "}${words(one.words)}`));
    for (const [memory, parts] of process.parts) {
      const known = parts.map(([part, bytes]) => `${plain(part)} ${bytes === null ? "unknown" : sayBytes(bytes)}`);
      held.append(element("div", `${plain(memory)} = ${known.join(" + ")}`, "soft"));
    }
    row.append(name, ended, peak, held);
    body.append(row);
  });
  table.append(body);
  $("process-list").replaceChildren(table);
  $("ranks").hidden = !isJob;
  if (isJob) fillRanks(page);
}

function processWords(process) {
  const parts = [process.rank !== null ? `rank ${process.rank}` : "", plain(process.name), process.pid !== null ? `pid ${process.pid}` : ""];
  return short(parts.filter(Boolean).join(" · "), 80);
}

/** A small picture of each rank, all of one scale; one that differs has a border. */
function fillRanks(page) {
  const { processes, lanes, end_ms } = page.data;
  const lineOf = (index) => {
    const own = lanes.filter((lane) => lane.process === index);
    return (own.find((lane) => lane.memory !== "host") ?? own[0])?.lines[0];
  };
  const order = processes.map((process, index) => index).filter((index) => processes[index].rank !== null && lineOf(index));
  order.sort((a, b) => processes[a].rank - processes[b].rank);
  const most = order.reduce((most, index) => lineOf(index).bytes.reduce((most, value) => Math.max(most, value), most), 1);
  $("ranks").replaceChildren(
    ...order.map((index) => {
      const process = processes[index], line = lineOf(index);
      const card = element("button", undefined, "rank" + (process.outlier ? " odd" : ""));
      card.append(element("b", `rank ${process.rank}`), spark(line, most, end_ms), element("span", `${sayBytes(Math.max(...line.bytes))} ${plain(line.name)}`, "soft"));
      card.title = process.outlier ? words(process.outlier) : processWords(process);
      card.addEventListener("click", () => page.choose(index));
      return card;
    }),
  );
}

function spark(line, most, end) {
  const [wide, high] = [150, 34];
  const made = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const svg = made("svg");
  svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  const curve = made("path");
  const point = (at, i) => `${((at / Math.max(1, end)) * wide).toFixed(1)},${(high - 1 - (line.bytes[i] / most) * (high - 2)).toFixed(1)}`;
  const points = line.time.map(point);
  const x = (at) => ((at / Math.max(1, end)) * wide).toFixed(1);
  curve.setAttribute("d", `M${x(line.time[0] ?? 0)},${high}L${points.join("L")}L${x(line.time.at(-1) ?? 0)},${high}Z`);
  svg.append(curve);
  return svg;
}

function fillEnvironment({ environment }) {
  const groups = environment.map(([name, rows], index) => {
    const box = element("details");
    box.open = index === 0;
    const table = element("table");
    const body = element("tbody");
    for (const [key, value] of rows) {
      const row = element("tr");
      row.append(element("td", short(plain(key), 200)), element("td", words(value)));
      body.append(row);
    }
    table.append(body);
    box.append(element("summary", `${plain(name)} (${rows.length})`), table);
    return box;
  });
  $("environment-list").replaceChildren(...(groups.length ? groups : [element("p", "Not recorded.", "soft")]));
}

/** Alerts and deaths as a list, for those who cannot point at a triangle. */
function fillEvents(page) {
  const marks = page.marks();
  $("events").hidden = marks.length === 0;
  $("events-title").textContent = `Alerts and events of ${page.processName()} (${marks.length})`;
  $("event-list").replaceChildren(
    ...marks.slice(0, 500).map((mark) => {
      const row = element("tr");
      row.append(element("td", sayTime(mark.at), "number"), element("td", plain(mark.name), "badge " + mark.severity), element("td", words(mark.text)));
      return row;
    }),
  );
}
