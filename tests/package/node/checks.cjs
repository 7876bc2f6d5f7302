'use strict';
// Check what the loader promises: node checks.cjs FOLDER [stand-in|dml|cpu]. It prints each behaviour that passed, then "good".
// "dml" runs on the onnxruntime-node for Windows, with injected errors of the GPU; "cpu" on one without DirectML.

const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { Worker } = require('node:worker_threads');

const [folder, where = 'stand-in'] = process.argv.slice(2);
const file = path.resolve(folder, 'dmlprep_model.cjs');
const loader = require(file);
const { Model } = loader;
const { standIn } = require('./stand_in.cjs');

const real = where !== 'stand-in';
const device = where === 'cpu' ? 'cpu' : 'dml';
const runtime = real ? require(require.resolve('onnxruntime-node', { paths: [path.resolve(folder)] })) : standIn().runtime;
const load = (options = {}) => Model.load(folder, { runtime, device, ...options });

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

async function warnings(work) {
  const list = [];
  const add = (warning) => list.push(warning);
  process.on('warning', add);
  const result = await work();
  await new Promise((done) => setImmediate(done)); // warnings come in a later turn of the event loop
  process.off('warning', add);
  return [result, list.filter((one) => one.code === 'DMLPREP_ON_CPU')];
}

// A package's files that are changed and restored.
async function changed(name, content, work) {
  const place = path.join(folder, name);
  const raw = fs.readFileSync(place);
  if (content === null) fs.unlinkSync(place);
  else fs.writeFileSync(place, content);
  try {
    await work();
  } finally {
    fs.writeFileSync(place, raw);
  }
}

function other(raw) {
  const content = Buffer.from(raw);
  content[content.length >> 1] ^= 1;
  return content;
}

async function settings() {
  const { state, runtime: fake } = standIn();
  const model = await Model.load(folder, { runtime: fake, adapter: 1 });
  const [[source, chosen]] = state.opened;
  assert.deepStrictEqual(Buffer.from(source), fs.readFileSync(path.join(folder, 'model.onnx'))); // the bytes that were checked
  assert.strictEqual(chosen.enableMemPattern, false);
  assert.strictEqual(chosen.executionMode, 'sequential');
  assert.deepStrictEqual(chosen.executionProviders, [{ name: 'dml', deviceId: 1 }, 'cpu']);
  assert.deepStrictEqual([model.asked, model.device, model.notice], ['dml', 'dml', '']);
  assert.match(model.evidence, /1\.24\.3 lists the backend dml/);
  await model[Symbol.asyncDispose]();
  assert.deepStrictEqual([model.device, model.evidence], ['', '']);
  await refused(loader.ModelError, () => model.run(feeds(model)), /closed: call reopen/);
  assert.throws(() => new Model(folder), /use await Model\.load/);
  await refused(loader.AdapterMissing, () => Model.load(folder, { runtime: fake, adapter: 'NVIDIA' }), /number/);
  assert.strictEqual((await Model.load(undefined, { runtime: fake })).device, 'dml'); // the folder of the loader
}

async function deviceMissing() {
  if (where !== 'cpu') {
    const { state, runtime: fake } = standIn();
    state.openError = '887A0002 The requested adapter was not found';
    const missing = real ? { adapter: 99 } : { runtime: fake };
    await refused(loader.AdapterMissing, () => load(missing), /887A0002.*choose another/);
  }
  if (where !== 'dml') { // for example, onnxruntime-node on Linux: by itself, it would run on the CPU
    const { state, runtime: fake } = standIn();
    state.backends = ['cpu'];
    const missing = { device: 'dml', runtime: real ? runtime : fake };
    await refused(loader.RuntimeMissing, () => load(missing), /has no backend 'dml' \(it has: cpu.*Windows/);
  }
}

// The loader of another package, in a folder without node_modules.
function another() {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), 'another-'));
  try {
    fs.copyFileSync(file, path.join(place, 'loader.cjs'));
    return require(path.join(place, 'loader.cjs'));
  } finally {
    fs.rmSync(place, { recursive: true });
  }
}

async function packageMissing() {
  const { Model: Alone, RuntimeMissing } = another();
  await refused(RuntimeMissing, () => Alone.load(folder), /^Cannot find module 'onnxruntime-node': npm install onnxruntime-node$/);
  const { runtime: fake } = standIn();
  fake.env.versions.node = '1.2.0';
  await refused(loader.RuntimeMissing, () => Model.load(folder, { runtime: fake, device: 'cpu' }), /1\.2\.0 is older than/);
}

async function wrongFile() {
  await changed('model.onnx', fs.readFileSync(path.join(folder, 'model.json')), async () => {
    await refused(loader.PackageDamaged, () => load(), /^model\.onnx has \d+ bytes, but model\.json lists \d+: copy/);
  });
  for (const name of ['model.json', 'model.json.sha256', 'model.onnx']) {
    await changed(name, null, () => refused(loader.PackageDamaged, () => load(), new RegExp(`^${name} is missing in .*: copy`)));
  }
  const read = async (name) => {
    if (name === 'model.onnx') throw new Error('no key');
    return fs.readFileSync(path.join(folder, name));
  };
  await refused(loader.PackageDamaged, () => load({ read }), /^model\.onnx cannot be read \(no key\)/);
}

async function wrongShape() {
  const model = await load();
  const [name] = model.inputs.map((one) => one.name);
  const { data, shape } = feeds(model)[name];
  const tensor = new runtime.Tensor(model.inputs[0].type, data, [shape[0], 1, ...shape.slice(1)]);
  await refused(loader.BadInput, () => model.run({ [name]: { data, shape: shape.slice(1) } }), /is \[.*\], but the model needs \[/);
  for (const one of [{ data }, data]) await refused(loader.BadInput, () => model.run({ [name]: one }), /has no shape: pass \{ data, shape \}/);
  await refused(loader.BadInput, () => model.run({ [name]: tensor }), /is \[.*\], but the model needs \[/);
  await refused(loader.BadInput, () => model.run({ [name]: { data: data.slice(1), shape } }), /elements, but its shape has/);
  await refused(loader.BadInput, () => model.run({}), /is missing/);
  await refused(loader.BadInput, () => model.run({ [name]: { data, shape }, more: { data, shape } }), /no input 'more'/);
  await refused(loader.BadInput, () => load({ sizes: { nothing: 1 } }), /no free dimension 'nothing'; there are: none/);
  await assert.rejects(() => load({ adaptor: 1 }), /^TypeError: unknown option 'adaptor': use device, adapter,/);
  await assert.rejects(() => Model.load({ device }), /^TypeError: the folder must be a string/);
  await assert.rejects(() => load({ read: () => 'text' }), /^TypeError: read\('model\.json'\) must return a Uint8Array/);
  await model.close();
}

async function wrongType() {
  const model = await load();
  const [{ name, type }] = model.inputs;
  const { data, shape } = feeds(model)[name];
  const doubles = Float64Array.from(data);
  await refused(loader.BadInput, () => model.run({ [name]: { data: doubles, shape } }), /is Float64Array, but the model needs (Float32|Uint8)Array/);
  await refused(loader.BadInput, () => model.run({ [name]: { data: [...data], shape } }), /is Array, but the model needs/);
  await refused(loader.BadInput, () => model.run({ [name]: { shape } }), /is no array, but the model needs/);
  const tensor = new runtime.Tensor('float64', doubles, shape);
  await refused(loader.BadInput, () => model.run({ [name]: tensor }), new RegExp(`is float64, but the model needs ${type}`));
  const good = await model.run({ [name]: { data, shape } });
  assert.deepStrictEqual(await model.run({ [name]: new runtime.Tensor(type, data, shape) }), good);
  const [{ name: out, type: kind }] = model.outputs;
  assert.strictEqual(good[out].type, kind);
  assert.ok(good[out].data instanceof loader.ARRAYS[kind] && Array.isArray(good[out].shape));
  if (type === 'uint8') { // the pixels of a canvas
    const pixels = { data: new Uint8ClampedArray(data), shape };
    assert.deepStrictEqual(await model.run({ [name]: pixels }), good);
  }
  await model.close();
}

// In a thread of its own: a model of its own.
const WORKER = `
const { parentPort, workerData: [file, folder, device, stand, inputs] } = require('node:worker_threads');
const { Model } = require(file);
const more = stand ? { runtime: require(stand).standIn().runtime } : {};
Model.load(folder, { device, ...more }).then(async (model) => {
  const outputs = await model.run(inputs);
  await model.close();
  parentPort.postMessage(outputs);
});`;

async function twoThreads() {
  const { most, runtime: fake } = standIn();
  const options = { device, runtime: real ? runtime : fake };
  const models = await Promise.all([Model, another().Model].map((one) => one.load(folder, options)));
  const expected = [];
  for (const factor of [1, 2]) expected.push(await models[0].run(feeds(models[0], factor)));
  assert.notDeepStrictEqual(expected[0], expected[1]);
  const answers = await Promise.all([0, 1, 1, 0, 0, 1].map((i, n) => models[n % 2].run(feeds(models[0], i + 1))));
  answers.forEach((answer, n) => assert.deepStrictEqual(answer, expected[[0, 1, 1, 0, 0, 1][n]]));
  if (!real) assert.deepStrictEqual(most, { inSession: 1, running: 2, opening: 1 });
  const stand = real ? '' : require.resolve('./stand_in.cjs');
  const worker = new Worker(WORKER, { eval: true, workerData: [file, folder, device, stand, feeds(models[0])] });
  const message = new Promise((done, failed) => worker.once('message', done).once('error', failed));
  const [there, here] = await Promise.all([message, models[0].run(feeds(models[0]))]);
  assert.deepStrictEqual([there, here], [expected[0], expected[0]]);
  await Promise.all(models.map((model) => model.close()));
  if (!real) assert.strictEqual(most.opening, 1);
}

// DirectML, real or a stand-in, whose runs fail with the text of `state.error`.
function failing() {
  const { InferenceSession, ...others } = where === 'dml' ? runtime : standIn().runtime;
  const state = { error: '', released: 0 };
  const create = async (source, chosen) => {
    const session = await InferenceSession.create(source, chosen);
    const run = async (...words) => {
      if (state.error && chosen.executionProviders[0] !== 'cpu') throw new Error(state.error);
      return session.run(...words);
    };
    const release = async () => {
      await session.release();
      state.released += 1;
      if (state.error) throw new Error(state.error);
    };
    return { run, release };
  };
  return [state, { runtime: { ...others, InferenceSession: { create } } }];
}

async function deviceRemoved() {
  const [state, options] = failing();
  const model = await Model.load(folder, options);
  const expected = await model.run(feeds(model));
  for (const [n, code] of ['887A0005', '887a0006', '887A0007', '887A0020'].entries()) {
    state.error = `Non-zero status code: DmlCommandRecorder.cpp ${code} The GPU device instance has been suspended.`;
    await refused(loader.DeviceRemoved, () => model.run(feeds(model)), /call reopen\(\).*reopen\('cpu'\)/);
    assert.deepStrictEqual([model.device, state.released], ['', n + 1]);
    state.error = '';
    await refused(loader.DeviceRemoved, () => model.run(feeds(model)), /reopen/);
    await model.reopen();
    assert.deepStrictEqual(await model.run(feeds(model)), expected);
  }
  await model.close();
}

async function outOfMemory() {
  const [state, options] = failing();
  const model = await Model.load(folder, options);
  for (const text of ['8007000E Not enough memory resources', 'bad allocation', 'Failed to allocate memory']) {
    state.error = text;
    await refused(loader.OutOfMemory, () => model.run(feeds(model)), /smaller/);
    await refused(loader.OutOfMemory, () => model.reopen(), /smaller/); // the first run with zeros fails
    await model.reopen('cpu');
    assert.deepStrictEqual([model.asked, model.device, model.notice], ['cpu', 'cpu', '']);
    await model.run(feeds(model));
    state.error = '';
    await model.reopen();
    assert.deepStrictEqual([model.asked, model.device], ['cpu', 'cpu']);
    await model.reopen('dml');
    assert.strictEqual(model.device, 'dml');
  }
  await model.close();
}

async function tampering() {
  const names = fs.readdirSync(folder).filter((name) => fs.statSync(path.join(folder, name)).isFile());
  const whole = Object.fromEntries(names.map((name) => [name, fs.readFileSync(path.join(folder, name))]));
  for (const name of Object.keys(JSON.parse(whole['model.json']).files)) {
    await changed(name, other(whole[name]), () => assert.rejects(() => load(), (error) => error.file === name));
  }
  await (await load({ read: (name) => whole[name] })).close();
  for (const name of ['model.json', 'model.json.sha256', 'model.onnx']) {
    const said = new RegExp(`^${name.replace('.sha256', '')} (does not match|was changed)`);
    await refused(loader.PackageDamaged, () => load({ read: (one) => (one === name ? other(whole[one]) : whole[one]) }), said);
    await refused(loader.PackageDamaged, () => load({ read: (one) => (one === name ? null : whole[one]) }), /is missing/);
  }
}

async function fallBack() {
  const { state, runtime: fake } = standIn();
  state.openError = '887A0004 The specified device interface is not supported';
  const options = { device: 'dml-or-cpu', ...(real ? { adapter: 99 } : { runtime: fake }) };
  const [model, said] = await warnings(async () => {
    const one = await load(options);
    await one.run(feeds(one));
    await one.run(feeds(one));
    return one;
  });
  assert.deepStrictEqual([model.asked, model.device], ['dml-or-cpu', 'cpu']);
  assert.match(model.notice, /the model runs on the CPU.*(887A000|has no backend 'dml')/);
  assert.match(model.evidence, /for the CPU only$/);
  assert.deepStrictEqual(said.map((one) => [one.name, one.message]), [['DmlprepWarning', model.notice]]);
  await model.close();
  assert.strictEqual(model.notice, '');
  const [quiet, none] = await warnings(() => load());
  assert.deepStrictEqual([quiet.asked, quiet.device, quiet.notice, none], [device, device, '', []]);
  await quiet.close();
}

const CHECKS = {
  'settings of sessions': settings,
  'device missing': deviceMissing,
  'package missing': packageMissing,
  'wrong file': wrongFile,
  'wrong shape': wrongShape,
  'wrong type': wrongType,
  'two threads': twoThreads,
  'device removed': deviceRemoved,
  tampering,
  'out of memory': outOfMemory,
  'fall-back said once': fallBack,
};

(async () => {
  for (const [name, check] of Object.entries(CHECKS)) {
    await check();
    console.log(name);
  }
  console.log('good');
})().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
