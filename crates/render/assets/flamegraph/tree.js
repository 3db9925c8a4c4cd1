// Turns the recorded stacks into the tree that is drawn: which stacks count, which frames are left out, which end is up.
// Must give the same totals whichever way the tree is turned.
"use strict";

const NATIVE = 1, LIBRARY = 2, IMPORT = 4, INTERPRETER = 8;

/** The entries to draw, as columns, for a thread (or all), a metric and a span (or the whole). */
function select(data, options) {
  const inSpan = options.span && data.spans;
  const { node, thread, birth, death, ...values } = inSpan ? data.spans : data.entries;
  const [value, other, before] = options.metric === "bytes" ? [values.bytes, values.count, values.before_bytes] : [values.count, values.bytes, values.before_count];
  const at = inSpan ? moment(data, options) : 0;
  const oldest = inSpan && options.spanMode === "kept" ? options.span[0] : -1;
  const column = (Kind) => new Kind(node.length);
  const rows = { node: column(Int32Array), value: column(Float64Array), other: column(Float64Array), before: before ? column(Float64Array) : null };
  let count = 0;
  for (let i = 0; i < node.length; i++) {
    if (options.thread >= 0 && thread[i] !== options.thread) continue;
    if (inSpan && !(birth[i] <= at && death[i] > at && birth[i] > oldest)) continue;
    rows.node[count] = node[i];
    rows.value[count] = value[i];
    rows.other[count] = other[i];
    if (before) rows.before[count] = before[i];
    count++;
  }
  for (const name in rows) rows[name] &&= rows[name].subarray(0, count);
  return rows;
}

/** Which step of the plot is shown: of a span its highest or its end; of the whole the one whose memory this is, -1 for none. */
function moment(data, options) {
  if (options.span) return options.spanMode === "high" ? highest(data.strip.heap, ...options.span) : options.span[1];
  return data.shown;
}

function highest(curve, from, to) {
  let best = from;
  for (let i = from; i <= to && i < curve.length; i++) if (curve[i] > curve[best]) best = i;
  return best;
}

/** The step of the plot at which exactly the memory of this page was alive, if there is one: the peak, or the end. */
function shownMoment({ spans, strip, entries }) {
  if (!spans || !strip) return -1;
  const whole = entries.bytes.reduce((sum, bytes) => sum + bytes, 0);
  const last = strip.heap.length - 1;
  const sumAt = (at) => spans.bytes.reduce((sum, bytes, i) => (spans.birth[i] <= at && spans.death[i] > at ? sum + bytes : sum), 0);
  return [highest(strip.heap, 0, last), last].find((at) => sumAt(at) === whole) ?? -1;
}

/** Builds the tree. Node 0 is everything; a parent comes before its children. */
function grow(data, rows, options) {
  const flags = data.frames.flags;
  const hidden = (options.hideImports ? IMPORT : 0) | (options.hideLibraries ? LIBRARY | INTERPRETER : 0);
  const frame = [-1], parent = [-1], depth = [0];
  const children = new Map();
  const width = data.frames.function.length + 1;
  const child = (above, id) => {
    const key = above * width + id;
    let node = children.get(key);
    if (node === undefined) {
      node = frame.push(id) - 1;
      children.set(key, node);
      parent.push(above);
      depth.push(depth[above] + 1);
    }
    return node;
  };
  // A stack's node in the tree is found once and remembered: stacks share most of their path.
  const known = new Int32Array(data.frame.length).fill(-1);
  known[0] = 0;
  const path = [];
  const upright = (node) => {
    path.length = 0;
    let n = node;
    for (; known[n] < 0; n = data.parent[n]) path.push(n);
    let at = known[n];
    for (let i = path.length - 1; i >= 0; i--) {
      if (!(flags[data.frame[path[i]]] & hidden)) at = child(at, data.frame[path[i]]);
      known[path[i]] = at;
    }
    return at;
  };
  const inverted = (node) => {
    let at = 0;
    for (let n = node; n > 0; n = data.parent[n]) if (!(flags[data.frame[n]] & hidden)) at = child(at, data.frame[n]);
    return at;
  };
  const leaves = rows.node.map(options.invert ? inverted : upright);
  const n = frame.length;
  const column = () => new Float64Array(n);
  const tree = { frame: new Int32Array(frame), parent: new Int32Array(parent), depth: new Int32Array(depth), total: column(), own: column(), other: column(), before: column() };
  for (let i = 0; i < leaves.length; i++) {
    const leaf = leaves[i];
    tree.own[leaf] += rows.value[i];
    tree.total[leaf] += rows.value[i];
    tree.other[leaf] += rows.other[i];
    if (rows.before) tree.before[leaf] += rows.before[i];
  }
  for (let i = n - 1; i > 0; i--) {
    const above = tree.parent[i];
    tree.total[above] += tree.total[i];
    tree.other[above] += tree.other[i];
    tree.before[above] += tree.before[i];
  }
  // With the leaves on top the frames that allocate are the outermost boxes; below them are callers, which own nothing of it.
  if (options.invert) for (let i = 1; i < n; i++) tree.own[i] = tree.depth[i] === 1 ? tree.total[i] : 0;
  return order(tree);
}

/** Children side by side, the largest first. In a comparison a frame is as wide as its larger side. */
function order(tree) {
  const { parent } = tree;
  const n = parent.length;
  tree.width = new Float64Array(n);
  // A parent must have room for its children also where both sides are mixed.
  const sum = new Float64Array(n);
  for (let i = n - 1; i >= 0; i--) {
    tree.width[i] = Math.max(tree.total[i], tree.before[i], sum[i]);
    if (i > 0) sum[parent[i]] += tree.width[i];
  }
  // The children of a node are those from its place in `first` to that of the next.
  tree.first = new Int32Array(n + 1);
  for (let i = 1; i < n; i++) tree.first[parent[i] + 1]++;
  for (let i = 0; i < n; i++) tree.first[i + 1] += tree.first[i];
  tree.child = new Int32Array(Math.max(0, n - 1));
  const next = tree.first.slice(0, n);
  for (let i = 1; i < n; i++) tree.child[next[parent[i]]++] = i;
  tree.children = (node) => tree.child.subarray(tree.first[node], tree.first[node + 1]);
  tree.left = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    const from = tree.first[i], to = tree.first[i + 1];
    // Most have one or two; only more than that are worth a sort.
    const a = tree.child[from], b = tree.child[from + 1];
    if (to - from > 2) tree.children(i).sort((a, b) => tree.width[b] - tree.width[a] || a - b);
    else if (to - from === 2 && tree.width[b] > tree.width[a]) (tree.child[from] = b), (tree.child[from + 1] = a);
    let x = tree.left[i];
    for (let k = from; k < to; k++) {
      tree.left[tree.child[k]] = x;
      x += tree.width[tree.child[k]];
    }
  }
  return tree;
}

/** Totals by frame: recursion counted once. */
function byFrame(tree) {
  const totals = new Map();
  const open = new Map();
  const visit = [0];
  while (visit.length) {
    const node = visit.pop();
    // Leaving a node is visited as its number, negative.
    if (node < 0) {
      const frame = tree.frame[-node];
      open.set(frame, open.get(frame) - 1);
      continue;
    }
    if (node > 0) {
      const frame = tree.frame[node];
      const row = totals.get(frame) ?? { frame, own: 0, total: 0, other: 0 };
      row.own += tree.own[node];
      if (!open.get(frame)) {
        row.total += tree.total[node];
        row.other += tree.other[node];
      }
      totals.set(frame, row);
      open.set(frame, (open.get(frame) ?? 0) + 1);
      visit.push(-node);
    }
    for (const c of tree.children(node)) visit.push(c);
  }
  return [...totals.values()].sort((a, b) => b.own - a.own || b.total - a.total);
}

/** The boxes whose frame has a text in its name or place, and what they hold, nested ones once. */
function boxesWith(data, tree, text) {
  const wanted = text.toLowerCase();
  const { frames, strings } = data;
  const hit = frames.function.map((f, i) => (strings[f] + " " + strings[frames.file[i]] + ":" + frames.line[i]).toLowerCase().includes(wanted));
  const matching = new Set();
  const covered = new Uint8Array(tree.frame.length);
  let sum = 0;
  for (let n = 1; n < tree.frame.length; n++) {
    covered[n] = covered[tree.parent[n]];
    if (!hit[tree.frame[n]]) continue;
    matching.add(n);
    if (!covered[n]) sum += tree.total[n];
    covered[n] = 1;
  }
  return { matching, sum, words: `${sayCount(matching.size)} ${matching.size === 1 ? "frame" : "frames"}` };
}
