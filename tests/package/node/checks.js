'use strict';
// What the loader promises beside the sample: node checks.js FOLDER [real]. A stand-in takes the place of onnxruntime-node, except
// for what "real" asks of it. Prints "good" last.

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');

const folder = process.argv[2];
const loader = require(path.resolve(folder, 'dmlprep_model.js'));
const { Model } = loader;
const { standIn } = require('./stand_in.js');

function feeds(model, factor = 1) {
  return Object.fromEntries(model.inputs.map((one) => {
    const length = one.shape.reduce((all, size) => all * size, 1);
    const data = one.type === 'uint8'
      ? Uint8Array.from({ length }, (_, i) => (Math.imul(i, 2654435761) >>> 24) + (factor - 1) * 91)
      : Float32Array.from({ length }, (_, i) => (factor * ((i * 37) % 101)) / 101);
    return [one.name, { data, shape: one.shape }];
  }));
}

async function refused(kind, work, pattern) {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof kind, `${error.name}: ${error.message}`);
    assert.match(error.message, pattern);
    return true;
  });
}

async function opened() {
  const { state, runtime } = standIn();
  const model = await Model.load(folder, { runtime, adapter: 1 });
  const [[source, settings]] = state.opened;
  assert.deepStrictEqual(Buffer.from(source), fs.readFileSync(path.join(folder, 'model.onnx'))); // the bytes that were checked
  assert.strictEqual(settings.enableMemPattern, false);
  assert.strictEqual(settings.executionMode, 'sequential');
  assert.deepStrictEqual(settings.executionProviders, [{ name: 'dml', deviceId: 1 }, 'cpu']);
  const other = await Model.load(folder, { runtime });
  await Promise.all([1, 2, 3, 4].map((factor) => (factor % 2 ? model : other).run(feeds(model, factor))));
  assert.strictEqual(state.atOnce, 1);
  await refused(loader.AdapterMissing, () => Model.load(folder, { runtime, adapter: 'NVIDIA' }), /number/);
}

async function removed() {
  for (const code of ['887A0005', '887a0006', '887A0007', '887A0020']) {
    const { state, runtime } = standIn();
    const model = await Model.load(folder, { runtime });
    state.error = `Non-zero status code: DmlCommandRecorder.cpp ${code} The GPU device instance has been suspended.`;
    await refused(loader.DeviceRemoved, () => model.run(feeds(model)), /call reopen\(\).*reopen\('cpu'\)/);
    state.error = '';
    await refused(loader.DeviceRemoved, () => model.run(feeds(model)), /reopen/);
    await model.reopen();
    await model.run(feeds(model));
    state.error = '8007000E Not enough memory resources';
    await refused(loader.OutOfMemory, () => model.run(feeds(model)), /smaller/);
    await model.reopen('cpu');
    assert.strictEqual(model.device, 'cpu');
    await model.run(feeds(model));
  }
}

async function fallBack() {
  const { state, runtime } = standIn();
  state.openError = '887A0004 The specified device interface is not supported';
  await refused(loader.AdapterMissing, () => Model.load(folder, { runtime }), /887A0004/);
  const model = await Model.load(folder, { runtime, device: 'dml-or-cpu' });
  assert.strictEqual(model.device, 'cpu');
  assert.match(model.notice, /887A0004/);
  runtime.env.versions.node = '1.2.0';
  await refused(loader.RuntimeMissing, () => Model.load(folder, { runtime, device: 'cpu' }), /older/);
}

async function badInputs() {
  const { runtime } = standIn();
  const model = await Model.load(folder, { runtime });
  const [name] = Object.keys(feeds(model));
  const { data, shape } = feeds(model)[name];
  await refused(loader.BadInput, () => model.run({}), /is missing/);
  await refused(loader.BadInput, () => model.run({ [name]: { data, shape: shape.slice(1) } }), /the model needs/);
  await refused(loader.BadInput, () => model.run({ [name]: { data: new Float64Array(data), shape } }), /needs (Float32|Uint8)Array/);
  await refused(loader.BadInput, () => model.run({ [name]: { data: data.slice(1), shape } }), /elements/);
  await refused(loader.BadInput, () => model.run({ [name]: { data, shape }, more: { data, shape } }), /no input 'more'/);
  await refused(loader.BadInput, () => Model.load(folder, { runtime, sizes: { nothing: 1 } }), /no free dimension/);
}

async function damaged() {
  const { runtime } = standIn();
  const whole = Object.fromEntries(fs.readdirSync(folder).filter((name) => fs.statSync(path.join(folder, name)).isFile())
    .map((name) => [name, fs.readFileSync(path.join(folder, name))]));
  const contract = JSON.parse(whole['model.json']);
  await Model.load('nowhere', { runtime, read: (name) => whole[name] });
  for (const name of ['model.json', 'model.json.sha256', 'model.onnx']) {
    const changed = Buffer.from(whole[name]);
    changed[changed.length >> 1] ^= 1;
    const pattern = new RegExp(`^${name === 'model.json.sha256' ? 'model.json' : name} `);
    await refused(loader.PackageDamaged, () => Model.load('nowhere', { runtime, read: (n) => (n === name ? changed : whole[n]) }), pattern);
    await refused(loader.PackageDamaged, () => Model.load('nowhere', { runtime, read: (n) => (n === name ? null : whole[n]) }), /is missing/);
  }
  for (const name of Object.keys(contract.files)) {
    const file = path.join(folder, name);
    const changed = Buffer.from(whole[name]);
    changed[0] ^= 1;
    fs.writeFileSync(file, changed);
    try {
      await assert.rejects(() => Model.load(folder, { runtime }), (error) => error.file === name);
    } finally {
      fs.writeFileSync(file, whole[name]);
    }
  }
}

async function real() {
  const models = [await Model.load(folder), await Model.load(folder)];
  const expected = [];
  for (const factor of [1, 2]) expected.push(await models[0].run(feeds(models[0], factor)));
  const answers = await Promise.all([0, 1, 0, 1].map((i) => models[i].run(feeds(models[0], i + 1))));
  answers.forEach((answer, i) => assert.deepStrictEqual(answer, expected[i % 2]));
  assert.notDeepStrictEqual(expected[0], expected[1]);
  await models[0].close();
  await refused(loader.ModelError, () => models[0].run(feeds(models[0])), /closed/);
  await models[0].reopen('cpu');
  await refused(loader.AdapterMissing, () => Model.load(folder, { adapter: 99 }), /887A0002/);
}

(async () => {
  for (const check of [opened, removed, fallBack, badInputs, damaged]) await check();
  if (process.argv[3] === 'real') await real();
  console.log('good');
})().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
