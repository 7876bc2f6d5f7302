'use strict';
// What the loader promises of buckets: node buckets.cjs FOLDER GRID [real], with sizes a line in GRID. A stand-in takes the place of
// onnxruntime-node, unless "real" is said. Prints what each of these sizes takes, then "good". buckets.py does the same.

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');

const [folder, grid, real] = process.argv.slice(2);
const { Model, ModelError, BadInput, PackageDamaged } = require(path.resolve(folder, 'dmlprep_model.cjs'));
const { standIn } = require('./stand_in.cjs');

const { state, runtime } = real ? {} : standIn();
const load = (options = {}) => Model.load(folder, { runtime, ...options });

function sizesOf(line) {
  return Object.fromEntries(line.split(' ').filter(Boolean).map((word) => {
    const [name, size] = word.split('=');
    return [name, Number(size)];
  }));
}

async function refused(kind, work, word) {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof kind && error.message.includes(word), `${error.name}: ${error.message}`);
    return true;
  });
}

function feeds(model) {
  return Object.fromEntries(model.inputs.map((one) => {
    const length = one.shape.reduce((all, size) => all * size, 1);
    return [one.name, { data: new Float32Array(length).fill(0.5), shape: one.shape }];
  }));
}

async function choices(model) {
  for (const line of fs.readFileSync(grid, 'utf8').split('\n').slice(0, -1)) {
    try {
      const { bucket, padding } = model.choose(sizesOf(line));
      console.log([bucket, ...Object.entries(padding).map(([name, missing]) => `${name}=${missing}`)].join(' '));
    } catch (error) {
      assert.ok(error instanceof BadInput);
      console.log(error.message);
    }
  }
}

async function taking() {
  const [small, large] = [{ height: 16, width: 16 }, { height: 24, width: 24 }];
  if (state) state.opened.length = 0;
  const model = await load({ sizes: large });
  assert.deepStrictEqual([model.bucket, model.padding], ['height24-width24', {}]);
  const fed = feeds(model);
  const first = await model.run(fed);
  await model.take({ height: 10, width: 16 });
  assert.deepStrictEqual([model.bucket, model.padding], ['height16-width16', { height: 6 }]);
  await model.run(feeds(model));
  await refused(BadInput, () => model.run(fed), 'the bucket height16-width16 has fixed sizes: pad the input');
  await refused(BadInput, () => model.take({ height: 25, width: 1 }), 'no bucket has room for height=25, width=1');
  await refused(BadInput, () => model.take({ height: 1.5, width: 1 }), "the size of 'height' is 1.5, but must be a whole number");
  assert.strictEqual(model.bucket, 'height16-width16');
  await model.run(feeds(model));
  await model.take(large);
  assert.deepStrictEqual(await model.run(fed), first);
  if (state) { // a session is made when its bucket is first taken
    const opened = state.opened.map(([source]) => path.basename(source));
    assert.deepStrictEqual(opened, ['height24-width24.onnx', 'height16-width16.onnx']);
  }
  await model.close();
  await refused(ModelError, () => model.take(small), 'closed');
  await model.reopen();
  assert.strictEqual(model.bucket, 'height24-width24');
  assert.strictEqual((await load()).bucket, 'height16-width16');
  await refused(BadInput, () => load({ sizes: { depth: 1 } }), "no free dimension 'depth'; there are: height, width");
}

async function lost() {
  const model = await load();
  state.openError = '8007000E Not enough memory resources';
  await refused(ModelError, () => model.take({ height: 24, width: 24 }), 'smaller inputs');
  state.openError = '';
  await model.run(feeds(model)); // the bucket of before is still there
  state.error = '887A0006 The GPU will not respond to more commands';
  await refused(ModelError, () => model.take({ height: 24, width: 24 }), 'call reopen()');
  state.error = '';
  assert.strictEqual(model.bucket, 'height16-width16');
  await refused(ModelError, () => model.run(feeds(model)), '887A0006');
  await model.reopen();
  await model.take({ height: 24, width: 24 });
  await model.run(feeds(model));
}

async function damaged() {
  const contract = JSON.parse(fs.readFileSync(path.join(folder, 'model.json')));
  const names = new Set(contract.buckets.flatMap((one) => [one.model.file, ...one.model.data]));
  for (const name of names) {
    const file = path.join(folder, name);
    const raw = fs.readFileSync(file);
    const changed = Buffer.from(raw);
    changed[changed.length - 1] ^= 1;
    fs.writeFileSync(file, changed);
    try {
      await refused(PackageDamaged, () => load(), `${name} was changed`);
    } finally {
      fs.writeFileSync(file, raw);
    }
  }
  const model = await load();
  const [first, second] = contract.buckets;
  const other = path.join(folder, second.model.file);
  const raw = fs.readFileSync(other);
  fs.unlinkSync(other);
  try {
    await refused(PackageDamaged, () => model.take(second.sizes), `${second.model.file} is missing`);
    assert.strictEqual(model.bucket, first.name);
    await model.run(feeds(model));
  } finally {
    fs.writeFileSync(other, raw);
  }
  const read = (name) => fs.readFileSync(path.join(folder, name));
  const fromMemory = await Model.load('nowhere', { runtime, read, sizes: second.sizes });
  await fromMemory.take(first.sizes);
  await fromMemory.run(feeds(fromMemory));
}

(async () => {
  await choices(await load({ warmUp: false }));
  await taking();
  if (state) await lost();
  await damaged();
  console.log('good');
})().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
