// Runs Perfetto's own trace processor, built for WebAssembly, on a trace to answer questions in
// SQL.
//
//   node query.mjs FOLDER TRACE SQL...
//
// FOLDER is what fetch.sh fetched. Prints one line of JSON per question: an array of rows, each an
// array of strings. The WebAssembly's glue code expects a web worker, whose few objects are
// provided here.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { runInThisContext } from 'node:vm';

/** Bytes of a trace handed over at once. */
const CHUNK = 4 << 20;

const [folder, trace, ...questions] = process.argv.slice(2);
const asset = (name) => join(folder, name);

// Its messages are not answers.
console.log = console.warn = console.error;

globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: `${pathToFileURL(folder).href}/` };
globalThis.XMLHttpRequest = class {
  open() {}
  send() {
    const { buffer, byteOffset, byteLength } = readFileSync(asset('trace_processor.wasm'));
    this.status = 200;
    this.response = buffer.slice(byteOffset, byteOffset + byteLength);
    this.onload?.();
  }
};

// The first module that it makes probes for 64-bit memories. The package has only the 32-bit
// WebAssembly.
const { Module } = WebAssembly;
WebAssembly.Module = function () {
  WebAssembly.Module = Module;
  throw new Error('no 64-bit memories');
};

runInThisContext(readFileSync(asset('engine_bundle.node.js'), 'utf8'));
const channel = new MessageChannel();
self.onmessage({ data: channel.port1 });
// It has its instance now, and processes it before the next task.
await new Promise(setImmediate);

const { EngineBase } = await import(pathToFileURL(asset('engine.mjs')).href);
class Engine extends EngineBase {
  id = 'query';
  mode = 'WASM';

  constructor(port) {
    super();
    this.port = port;
    port.onmessage = ({ data }) => this.onRpcResponseBytes(data);
  }

  rpcSendRequestBytes(bytes) {
    this.port.postMessage(bytes);
  }
}

const engine = new Engine(channel.port2);
const bytes = new Uint8Array(readFileSync(trace));
for (let at = 0; at < bytes.length; at += CHUNK) {
  await engine.parse(bytes.subarray(at, at + CHUNK));
}
await engine.notifyEof();
for (const question of questions) {
  const result = await engine.query(question);
  const columns = result.columns();
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(columns.map((column) => String(row.get(column))));
  }
  process.stdout.write(`${JSON.stringify(rows)}\n`);
}
process.exit(0);
