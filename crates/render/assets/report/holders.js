// What each line of the program held over time, of one graph: the largest lines and the rest. Must add up to what the graph holds at every moment.
"use strict";

const BANDS = 5;

/** Bands of the largest lines, from the top of the list down, and the others together. `null` where the recording does not know when memory came. */
function holdersOf(graph, home) {
  const { spans, strip } = graph.flame;
  if (!spans || !strip) return null;
  const steps = strip.time.length;
  const changes = new Map();
  for (let i = 0; i < spans.node.length; i++) {
    const frame = home[spans.node[i]];
    let line = changes.get(frame);
    if (!line) changes.set(frame, (line = new Float64Array(steps + 1)));
    line[spans.birth[i]] += spans.bytes[i];
    line[Math.min(steps, spans.death[i])] -= spans.bytes[i];
  }
  const total = new Float64Array(steps);
  const lines = [...changes].map(([frame, change]) => {
    let now = 0, most = 0;
    const bytes = new Float64Array(steps);
    for (let i = 0; i < steps; i++) {
      now += change[i];
      bytes[i] = now;
      total[i] += now;
      most = Math.max(most, now);
    }
    return { frame, bytes, most };
  });
  lines.sort((a, b) => b.most - a.most);
  const name = (frame) => (frame === 0 ? "(no stack)" : [placeOf(graph.flame, frame - 1), shortName(graph.flame, frame - 1)].filter(Boolean).join(" "));
  const bands = lines.slice(0, BANDS).map((line) => ({ ...line, name: name(line.frame) }));
  const rest = lines.slice(BANDS);
  if (rest.length) {
    const bytes = new Float64Array(steps);
    for (const line of rest) line.bytes.forEach((value, i) => (bytes[i] += value));
    bands.push({ frame: -1, bytes, name: `${sayCount(rest.length)} other ${rest.length === 1 ? "line" : "lines"}` });
  }
  return { time: strip.time, total, bands };
}
