#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq node

cat >"$INPUT/work.js" <<'END'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { createHash } = require('crypto');
const { spawnSync } = require('child_process');
const zlib = require('zlib');
const digest = (data) => createHash('sha256').update(data).digest('hex');

if (!isMainThread) {
	const block = Buffer.alloc(workerData.size, workerData.number);
	let rounds = 0;
	for (; rounds < 40; rounds++) new Uint8Array(200_000 + rounds).fill(rounds);
	parentPort.postMessage([workerData.number, digest(block), rounds]);
	return;
}

const chunks = [];
for (let i = 0; i < 400; i++) chunks.push(Buffer.alloc((i * 7919) % 200_000, i & 255));
const all = Buffer.concat(chunks);
console.log(all.length, digest(all));
for (let i = 0; i < 200; i++) if (!Buffer.alloc(500_000).every((byte, at) => at % 4096 || byte === 0)) throw i;

const tree = {};
for (let i = 0; i < 40_000; i++) tree[`key${i}`] = [i, i / 7, 'x'.repeat(i % 60), { n: null }];
const text = JSON.stringify(tree);
console.log(text.length, digest(text), digest(JSON.stringify(JSON.parse(text))));
console.log(digest(zlib.gunzipSync(zlib.gzipSync(text))));
let shared = new SharedArrayBuffer(4_000_000);
new Int32Array(shared).fill(7);
console.log(new Int32Array(shared).reduce((sum, value) => sum + value, 0));
shared = null;
chunks.length = 0;
global.gc();
global.gc();
console.log(spawnSync(process.execPath, ['-p', 'Buffer.alloc(1e6, 1).length']).stdout.toString().trim());

let left = 4;
const results = [];
for (let number = 0; number < 4; number++) {
	new Worker(__filename, { workerData: { number, size: 1_000_000 + number } }).on('message', (result) => {
		results[number] = result;
		if (--left === 0) {
			console.log(results);
			console.error('to stderr');
			process.exitCode = 5;
		}
	});
}
END
job <<'END'
node --expose-gc "$INPUT/work.js"
echo "status $?"
END
same "node" node
finish
