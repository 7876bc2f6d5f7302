'use strict';
// Load a packaged model on DirectML, and run it, as ONNX Runtime's DirectML provider demands. Node 18 or newer.
//
//     const { Model } = require('./dmlprep_model.js');
//     const model = await Model.load('app', { device: 'dml-or-cpu' });
//     const outputs = await model.run({ image: { data: new Float32Array(...), shape: [1, 3, 224, 224] } });
//
// Needs onnxruntime-node, whose package for Windows holds DirectML.dll. README.md says what to do about each error.

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');

const CONTRACT = 'model.json';
const DIGEST = 'model.json.sha256';
const FORMAT = 1;
const NO_BUCKETS = 'the package has no buckets: its model has the sizes of its contract';

// By the contract's element types. onnxruntime-node takes float16 as its bits.
const ARRAYS = {
  float16: Uint16Array, float32: Float32Array, float64: Float64Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, bool: Uint8Array,
};

class ModelError extends Error {
  constructor(message) {
    super(message);
    this.name = this.constructor.name;
  }
}

// A file is not the one of the contract; `file` names it.
class PackageDamaged extends ModelError {
  constructor(file, what) {
    super(`${file} ${what}: copy the package again completely`);
    this.file = file;
  }
}

class RuntimeMissing extends ModelError {} // no onnxruntime-node with DirectML, or too old
class AdapterMissing extends ModelError {} // no such adapter
class BadInput extends ModelError {} // missing, or not of the type and shape of the contract
class DeviceRemoved extends ModelError {} // 887A0005, 887A0006, 887A0007, 887A0020: wait a second, then reopen()
class OutOfMemory extends ModelError {} // 8007000E: free other models, smaller inputs, then reopen()

const REMOVED = 'close other programs that use the GPU, wait a second and call reopen(). If it happens again, use smaller ' +
  "inputs or another driver, or run on the CPU with reopen('cpu')";
const MEMORY = 'free other models and GPU programs, use a smaller batch or smaller inputs, then call reopen(); or run on ' +
  "the CPU with reopen('cpu')";

// Sessions of DirectML are neither made nor run side by side: some drivers crash, even for two different sessions.
// This queue is of one thread: keep DirectML out of worker_threads, or in one of them alone.
let queue = Promise.resolve();

function oneAtATime(work) {
  const done = queue.then(work);
  queue = done.catch(() => undefined);
  return done;
}

function sha256(bytes) {
  return crypto.createHash('sha256').update(bytes).digest('hex');
}

async function sha256OfFile(file) {
  const hash = crypto.createHash('sha256');
  let size = 0;
  for await (const piece of fs.createReadStream(file)) {
    hash.update(piece);
    size += piece.length;
  }
  return [size, hash.digest('hex')];
}

function translated(error) {
  const text = error instanceof Error ? error.message : String(error);
  const found = (codes) => codes.find((code) => text.toUpperCase().includes(code.toUpperCase()));
  let code = found(['887A0005', '887A0006', '887A0007', '887A0020']);
  if (code) return new DeviceRemoved(`the GPU stopped answering (${code}): ${REMOVED}`);
  code = found(['8007000E', 'bad allocation', 'Failed to allocate memory']);
  if (code) return new OutOfMemory(`out of memory (${code}): ${MEMORY}`);
  code = found(['887A0002', '887A0004', 'C0262002']);
  if (code) return new AdapterMissing(`the adapter cannot be used (${code}): choose another, or install its driver`);
  return new ModelError(text);
}

function older(version, least) {
  const [a, b] = [version, least].map((text) => text.split('.').slice(0, 2).map(Number));
  return a[0] !== b[0] ? a[0] < b[0] : a[1] < b[1];
}

// Of the buckets of a contract, { bucket, padding } for these sizes: the bucket of exactly these; else, of those that are as
// large in every dimension, that of fewest elements. `padding` is, by dimension, how many elements the app has to add.
function choose(buckets, sizes) {
  if (!buckets.length) throw new BadInput(NO_BUCKETS);
  const known = Object.keys(buckets[0].sizes);
  const has = (name) => Object.hasOwn(sizes, name);
  const strange = Object.keys(sizes).sort().find((name) => !known.includes(name));
  if (strange !== undefined) throw new BadInput(`the buckets have no dimension '${strange}'; they have: ${known.join(', ')}`);
  const missing = known.find((name) => !has(name));
  if (missing !== undefined) throw new BadInput(`the size of '${missing}' is missing: the buckets differ in ${known.join(', ')}`);
  const wrong = known.find((name) => !Number.isSafeInteger(sizes[name]) || sizes[name] < 1);
  if (wrong !== undefined) throw new BadInput(`the size of '${wrong}' is ${sizes[wrong]}, but must be a whole number of at least 1`);
  const elements = (one) => Object.values(one.sizes).reduce((all, size) => all * size, 1);
  const room = buckets.filter((one) => known.every((name) => one.sizes[name] >= sizes[name]));
  if (!room.length) {
    const asked = known.map((name) => `${name}=${sizes[name]}`).join(', ');
    throw new BadInput(`no bucket has room for ${asked}; there are: ${buckets.map((one) => one.name).join(', ')}`);
  }
  const bucket = room.reduce((best, one) => (elements(one) < elements(best) ? one : best));
  const lacking = known.filter((name) => bucket.sizes[name] > sizes[name]);
  return { bucket, padding: Object.fromEntries(lacking.map((name) => [name, bucket.sizes[name] - sizes[name]])) };
}

class Model {
  // The model of the package in `folder`, checked against model.json, ready to run.
  //
  // options.device    'dml'; 'cpu' for the CPU alone; 'dml-or-cpu' for the CPU where DirectML cannot be had: `notice` says why
  // options.adapter   DXGI's number; 0 is the adapter of the desktop. Node cannot ask for names or preferences.
  // options.sizes     sizes of dimensions that the contract leaves free, by name; of a package with buckets, those of the app's
  //                   inputs: `bucket` and `padding` then say what was chosen, which is the first bucket without any
  // options.warmUp    false to load without a first run
  // options.read      gives a file's bytes (or a promise of them) by its name, in place of `folder`
  // options.runtime   what require('onnxruntime-node') gives, where the app has it elsewhere
  static async load(folder, options = {}) {
    const model = new Model(folder, options);
    await model.readContract();
    model.part = model.wanted(options.sizes || {});
    await model.reopen(options.device || 'dml');
    return model;
  }

  constructor(folder, options) {
    this.folder = folder;
    this.options = options;
    this.contract = null;
    this.part = null; // what is chosen: the contract or one of its buckets, `padding`, and sizes of free dimensions
    this.sessions = new Map(); // by the name of the bucket, '' where there are none
    this.lost = null;
    this.device = '';
    this.notice = '';
  }

  // Of the model that is loaded.
  get inputs() {
    return this.part.of.inputs;
  }

  get outputs() {
    return this.part.of.outputs;
  }

  // Name of the bucket that is loaded; '' for a package without buckets.
  get bucket() {
    return this.part.of.name || '';
  }

  // By dimension, how many elements the app has to add to its inputs for that bucket. What they must hold depends on the model.
  get padding() {
    return this.part.padding;
  }

  get buckets() {
    return this.contract.buckets || [];
  }

  // Which bucket these sizes would take: { bucket, sizes, padding }. Nothing is loaded. BadInput where none has room.
  choose(sizes) {
    const { bucket, padding } = choose(this.buckets, sizes);
    return { bucket: bucket.name, sizes: { ...bucket.sizes }, padding };
  }

  // Go on with the bucket for these sizes. Its session is made where it was not before; the others stay, each with weights of
  // its own on the device, until close() or reopen(). Calls of run() before this one are done with the bucket of then.
  take(sizes) {
    return oneAtATime(async () => {
      if (!this.buckets.length) throw new BadInput(NO_BUCKETS);
      const part = this.wanted(sizes);
      this.check();
      const before = this.part;
      this.part = part;
      try {
        if (!this.session) await this.open(await this.checked(), this.device);
      } catch (error) {
        await this.drop(this.bucket);
        this.part = before;
        throw error;
      }
    });
  }

  wanted(sizes) {
    if (!this.buckets.length) return { of: this.contract, padding: {}, free: sizes };
    const [own, free] = [{}, {}];
    for (const [name, size] of Object.entries(sizes)) (Object.hasOwn(this.buckets[0].sizes, name) ? own : free)[name] = size;
    const { bucket, padding } = Object.keys(own).length ? choose(this.buckets, own) : { bucket: this.buckets[0], padding: {} };
    return { of: bucket, padding, free };
  }

  get session() {
    return this.sessions.get(this.bucket);
  }

  // A new session of the bucket that is loaded, and no others: after DeviceRemoved or OutOfMemory.
  reopen(device = 'dml') {
    if (!['dml', 'cpu', 'dml-or-cpu'].includes(device)) throw new RangeError(`unknown device ${device}`);
    return oneAtATime(async () => {
      await this.drop();
      this.lost = null;
      this.notice = '';
      const kept = await this.checked();
      if (device !== 'cpu') {
        try {
          await this.open(kept, 'dml');
          return;
        } catch (error) {
          if (device !== 'dml-or-cpu') throw error;
          await this.drop();
          this.notice = `DirectML is not available: the model runs on the CPU, which is slower: ${error.message}`;
        }
      }
      await this.open(kept, 'cpu');
    });
  }

  // Give the memory of all sessions back.
  close() {
    return oneAtATime(() => this.drop());
  }

  // Run once; other calls wait meanwhile. Inputs and outputs are { data, shape } by name; `data` is a typed array.
  run(inputs) {
    return oneAtATime(() => this.runNow(inputs));
  }

  // Let sessions go: that of one bucket, or all.
  async drop(name) {
    const gone = [...this.sessions].filter(([bucket]) => name === undefined || bucket === name);
    for (const [bucket, session] of gone) {
      this.sessions.delete(bucket);
      await session.release();
    }
  }

  check() {
    if (this.lost) throw this.lost;
    if (!this.sessions.size) throw new ModelError('the model is closed: call reopen()');
  }

  async bytes(name) {
    try {
      if (this.options.read) {
        const found = await this.options.read(name);
        if (!found) throw new Error('not there');
        return Buffer.from(found.buffer, found.byteOffset, found.byteLength);
      }
      return await fs.promises.readFile(path.join(this.folder, name));
    } catch (error) {
      throw new PackageDamaged(name, 'is missing');
    }
  }

  async readContract() {
    const raw = await this.bytes(CONTRACT);
    const said = (await this.bytes(DIGEST)).toString('latin1');
    if (said !== `${sha256(raw)}  ${CONTRACT}\n`) throw new PackageDamaged(CONTRACT, `does not match ${DIGEST}`);
    this.contract = JSON.parse(raw.toString('utf8'));
    if (this.contract.format !== FORMAT) throw new PackageDamaged(CONTRACT, `has a format that this loader does not read`);
    const parts = [this.contract, ...this.buckets];
    for (const one of parts.flatMap((part) => [...part.inputs, ...part.outputs])) {
      if (!(one.type in ARRAYS)) throw new ModelError(`'${one.name}' is ${one.type}, which this loader does not support`);
    }
  }

  // Every file as the contract has it; the bytes of those that the session is made from.
  async checked() {
    const { file, data } = this.part.of.model;
    const kept = {};
    for (const [name, entry] of Object.entries(this.contract.files)) {
      const needed = name === file || data.includes(name);
      if (!needed && (this.options.read || !fs.existsSync(path.join(this.folder, name)))) continue; // what need not ship
      let size;
      let digest;
      if (needed && (this.options.read || !data.includes(name))) {
        kept[name] = await this.bytes(name);
        [size, digest] = [kept[name].length, sha256(kept[name])];
      } else {
        try {
          [size, digest] = await sha256OfFile(path.join(this.folder, name));
        } catch (error) {
          throw new PackageDamaged(name, 'is missing');
        }
      }
      if (size !== entry.bytes) throw new PackageDamaged(name, `has ${size} bytes, and ${CONTRACT} says ${entry.bytes}`);
      if (digest !== entry.sha256) throw new PackageDamaged(name, `was changed: its SHA-256 is not the one in ${CONTRACT}`);
    }
    return kept;
  }

  runtime() {
    try {
      return this.options.runtime || require('onnxruntime-node');
    } catch (error) {
      throw new RuntimeMissing(`${error.message}: npm install onnxruntime-node`);
    }
  }

  async open(kept, device) {
    const runtime = this.runtime();
    const version = runtime.env.versions.node || runtime.env.versions.common;
    const least = this.part.of.target.lowest_onnxruntime;
    if (older(version, least)) {
      throw new RuntimeMissing(`onnxruntime-node ${version} is older than ${least}, the oldest version for this model`);
    }
    const settings = { executionMode: 'sequential', graphOptimizationLevel: 'all', logSeverityLevel: 3 };
    const adapter = this.options.adapter === undefined ? 0 : this.options.adapter;
    if (device === 'dml') {
      if (!Number.isInteger(adapter) || adapter < 0) throw new AdapterMissing(`in Node an adapter is DXGI's number, not ${adapter}`);
      settings.enableMemPattern = false;
      settings.executionProviders = [{ name: 'dml', deviceId: adapter }, 'cpu'];
    } else {
      settings.executionProviders = ['cpu'];
    }
    const free = new Set(this.inputs.flatMap((one) => one.shape.filter((size) => typeof size === 'string')));
    const sizes = this.part.free;
    for (const name of Object.keys(sizes)) {
      if (!free.has(name)) throw new BadInput(`the model has no free dimension '${name}'`);
    }
    if (Object.keys(sizes).length) settings.freeDimensionOverrides = sizes;
    const { file, data } = this.part.of.model;
    const byPath = data.length > 0 && !this.options.read;
    if (data.length > 0 && this.options.read) settings.externalData = data.map((name) => ({ path: name, data: kept[name] }));
    try {
      const source = byPath ? path.join(this.folder, file) : kept[file];
      this.sessions.set(this.bucket, await runtime.InferenceSession.create(source, settings));
    } catch (error) {
      throw translated(error);
    }
    this.device = device;
    if (this.options.warmUp !== false) await this.warmUp();
  }

  shapeOf(one) {
    const sizes = this.part.free;
    return one.shape.map((size) => (typeof size === 'string' && size in sizes ? sizes[size] : size));
  }

  // With zeros, where all sizes are known: the first run compiles shaders.
  async warmUp() {
    const feeds = {};
    for (const one of this.inputs) {
      const shape = this.shapeOf(one);
      if (shape.some((size) => typeof size === 'string')) return;
      feeds[one.name] = { data: new ARRAYS[one.type](shape.reduce((all, size) => all * size, 1)), shape };
    }
    await this.runNow(feeds);
  }

  fitting(one, inputs) {
    const given = inputs[one.name];
    if (!given) throw new BadInput(`input '${one.name}' is missing`);
    const wanted = this.shapeOf(one);
    const shape = Array.from(given.shape || []);
    const fits = shape.length === wanted.length && wanted.every((size, axis) => typeof size === 'string' || size === shape[axis]);
    const why = this.bucket ? `; the bucket ${this.bucket} has fixed sizes: pad the input` : '';
    if (!fits) throw new BadInput(`input '${one.name}' is [${shape}], but the model needs [${wanted}]${why}`);
    if (!(given.data instanceof ARRAYS[one.type])) {
      throw new BadInput(`input '${one.name}' needs ${ARRAYS[one.type].name} for ${one.type}`);
    }
    const count = shape.reduce((all, size) => all * size, 1);
    if (given.data.length !== count) throw new BadInput(`input '${one.name}' has ${given.data.length} elements, not ${count}`);
    return new (this.runtime().Tensor)(one.type, given.data, shape);
  }

  async runNow(inputs) {
    this.check();
    const feeds = {};
    for (const one of this.inputs) feeds[one.name] = this.fitting(one, inputs);
    const strange = Object.keys(inputs).find((name) => !(name in feeds));
    if (strange) throw new BadInput(`the model has no input '${strange}'; it has: ${Object.keys(feeds).join(', ')}`);
    let answers;
    try {
      answers = await this.session.run(feeds, this.outputs.map((one) => one.name));
    } catch (error) {
      const found = translated(error);
      if (found instanceof DeviceRemoved || found instanceof OutOfMemory) {
        this.lost = found;
        this.sessions.clear();
      }
      throw found;
    }
    return Object.fromEntries(this.outputs.map((one) => [one.name, { data: answers[one.name].data, shape: answers[one.name].dims }]));
  }
}

module.exports = {
  Model, ModelError, PackageDamaged, RuntimeMissing, AdapterMissing, BadInput, DeviceRemoved, OutOfMemory, ARRAYS,
};
