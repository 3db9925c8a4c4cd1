// Turns the recorded stacks into the tree that is drawn: which stacks count, which frames are left out, which end is up.
// Must give the same totals whichever way the tree is turned.
"use strict";

const NATIVE = 1, LIBRARY = 2, IMPORT = 4, INTERPRETER = 8;

/** The entries to draw: {node, value, before} columns, for a thread (or all), a metric and a span (or the whole). */
function select(data, options) {
  const rows = { node: [], value: [], before: data.entries.before_bytes ? [] : null, other: [] };
  const push = (node, value, other, before) => {
    rows.node.push(node);
    rows.value.push(value);
    rows.other.push(other);
    if (rows.before) rows.before.push(before);
  };
  const bySize = options.metric === "bytes";
  if (options.span && data.spans) {
    const s = data.spans;
    const [from, to] = options.span;
    const at = options.spanMode === "high" ? highest(data.strip.heap, from, to) : to;
    for (let i = 0; i < s.node.length; i++) {
      if (options.thread >= 0 && s.thread[i] !== options.thread) continue;
      const alive = s.birth[i] <= at && s.death[i] > at;
      if (!alive || (options.spanMode === "kept" && s.birth[i] <= from)) continue;
      push(s.node[i], bySize ? s.bytes[i] : s.count[i], bySize ? s.count[i] : s.bytes[i], 0);
    }
    return rows;
  }
  const e = data.entries;
  for (let i = 0; i < e.node.length; i++) {
    if (options.thread >= 0 && e.thread[i] !== options.thread) continue;
    const before = rows.before ? (bySize ? e.before_bytes[i] : e.before_count[i]) : 0;
    push(e.node[i], bySize ? e.bytes[i] : e.count[i], bySize ? e.count[i] : e.bytes[i], before);
  }
  return rows;
}

function highest(curve, from, to) {
  let best = from;
  for (let i = from; i <= to && i < curve.length; i++) if (curve[i] > curve[best]) best = i;
  return best;
}

/** Builds the tree. Node 0 is everything. */
function grow(data, rows, options) {
  const flags = data.frames.flags;
  const hidden = (options.hideImports ? IMPORT : 0) | (options.hideLibraries ? LIBRARY | INTERPRETER : 0);
  const tree = { frame: [-1], parent: [-1], total: [0], own: [0], other: [0], before: [0], depth: [0] };
  const children = new Map();
  const width = data.frames.function.length + 1;
  const child = (parent, frame) => {
    const key = parent * width + frame;
    let id = children.get(key);
    if (id === undefined) {
      id = tree.frame.length;
      children.set(key, id);
      tree.frame.push(frame);
      tree.parent.push(parent);
      tree.depth.push(tree.depth[parent] + 1);
      for (const column of [tree.total, tree.own, tree.other, tree.before]) column.push(0);
    }
    return id;
  };
  // A stack's node in the tree is found once and remembered: stacks share most of their path.
  const known = new Int32Array(data.frame.length).fill(-1);
  known[0] = 0;
  const path = [];
  const place = (node) => {
    if (options.invert) {
      let at = 0;
      for (let n = node; n > 0; n = data.parent[n]) if (!(flags[data.frame[n]] & hidden)) at = child(at, data.frame[n]);
      return at;
    }
    path.length = 0;
    let n = node;
    while (known[n] < 0) {
      path.push(n);
      n = data.parent[n];
    }
    let at = known[n];
    for (let i = path.length - 1; i >= 0; i--) {
      if (!(flags[data.frame[path[i]]] & hidden)) at = child(at, data.frame[path[i]]);
      known[path[i]] = at;
    }
    return at;
  };
  for (let i = 0; i < rows.node.length; i++) {
    const leaf = place(rows.node[i]);
    tree.own[leaf] += rows.value[i];
    const before = rows.before ? rows.before[i] : 0;
    for (let n = leaf; n >= 0; n = tree.parent[n]) {
      tree.total[n] += rows.value[i];
      tree.other[n] += rows.other[i];
      tree.before[n] += before;
    }
  }
  return order(tree);
}

/** Children side by side, the largest first. In a comparison a frame is as wide as its larger side. */
function order(tree) {
  const n = tree.frame.length;
  tree.width = Float64Array.from(tree.total);
  for (let i = 0; i < n; i++) tree.width[i] = Math.max(tree.total[i], tree.before[i]);
  // A parent must have room for its children also where both sides are mixed.
  const sum = new Float64Array(n);
  for (let i = n - 1; i > 0; i--) {
    tree.width[i] = Math.max(tree.width[i], sum[i]);
    sum[tree.parent[i]] += tree.width[i];
  }
  tree.width[0] = Math.max(tree.width[0], sum[0]);
  tree.children = Array.from({ length: n }, () => null);
  for (let i = 1; i < n; i++) (tree.children[tree.parent[i]] ??= []).push(i);
  for (const list of tree.children) if (list) list.sort((a, b) => tree.width[b] - tree.width[a] || a - b);
  tree.left = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    let x = tree.left[i];
    for (const c of tree.children[i] ?? []) {
      tree.left[c] = x;
      x += tree.width[c];
    }
  }
  tree.levels = tree.depth.reduce((a, b) => Math.max(a, b), 0) + 1;
  return tree;
}

/** Totals by frame: recursion counted once. */
function byFrame(tree) {
  const totals = new Map();
  const open = new Map();
  const visit = [[0, false]];
  while (visit.length) {
    const [node, leaving] = visit.pop();
    const frame = tree.frame[node];
    if (leaving) {
      open.set(frame, open.get(frame) - 1);
      continue;
    }
    if (node > 0) {
      const row = totals.get(frame) ?? { frame, own: 0, total: 0, other: 0 };
      row.own += tree.own[node];
      if (!open.get(frame)) {
        row.total += tree.total[node];
        row.other += tree.other[node];
      }
      totals.set(frame, row);
      open.set(frame, (open.get(frame) ?? 0) + 1);
      visit.push([node, true]);
    }
    for (const c of tree.children[node] ?? []) visit.push([c, false]);
  }
  return [...totals.values()].sort((a, b) => b.own - a.own || b.total - a.total);
}
