// Turns the packed columns into what the tree is grown from.
"use strict";

async function unpack() {
  const first = await read();
  for (const data of [first, ...(first.others ?? [])]) prepare(data);
  return first;
}

function prepare(data) {
  data.strings = data.strings.map(plain);
  data.threads = data.threads.map(plain);
  // Columns arrive as differences where that packs well.
  data.parent = Int32Array.from(data.nodes.up, (up, node) => node - up);
  data.frame = Int32Array.from(data.nodes.frame);
  data.entries.node = running(data.entries.node);
  if (data.spans) data.spans.node = running(data.spans.node);
}

function running(differences) {
  let sum = 0;
  return Int32Array.from(differences, (difference) => (sum += difference));
}
