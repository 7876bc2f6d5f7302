'use strict';
// Load a packaged model on DirectML, and run it, as ONNX Runtime's DirectML provider demands. Node 20 or newer.
//
//     const { Model } = require('./dmlprep_model.cjs'); // or: import { Model } from './dmlprep_model.mjs'
//     const model = await Model.load();
//     const outputs = await model.run({ image: { data: new Float32Array(...), shape: [1, 3, 224, 224] } });
//
// dmlprep_model.d.cts documents each member. README.md lists each error with its remedy.

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');

const CONTRACT = 'model.json';
const DIGEST = 'model.json.sha256';
const FORMAT = 1;
const DEVICES = ['dml', 'cpu', 'dml-or-cpu'];
const OPTIONS = ['device', 'adapter', 'sizes', 'warmUp', 'read', 'runtime'];
const LOADED = Symbol('loaded'); // only Model.load constructs models
const NO_BUCKETS = 'the package has no buckets: its model has the sizes of its contract';

// By the contract's element types. A float16 is its bits.
const ARRAYS = {
  float16: Uint16Array, float32: Float32Array, float64: Float64Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, bool: Uint8Array,
};

// Arrays with the same bytes. Newer versions of Node have Float16Array.
const SAME_BYTES = { float16: [globalThis.Float16Array ?? Uint16Array], uint8: [Uint8ClampedArray] };

class ModelError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = this.constructor.name;
  }
}

class PackageDamaged extends ModelError {
  constructor(file, what, options) {
    super(`${file} ${what}: copy the package again completely`, options);
    this.file = file;
  }
}

class RuntimeMissing extends ModelError {}
class AdapterMissing extends ModelError {}
class BadInput extends ModelError {}
class DeviceRemoved extends ModelError {}
class OutOfMemory extends ModelError {}

const REMOVED = 'close other programs that use the GPU, wait a second and call reopen(). If it happens again, use smaller ' +
  "inputs or another driver, or run on the CPU with reopen('cpu')";
const MEMORY = 'free other models and GPU programs, use a smaller batch or smaller inputs, then call reopen(); or run on ' +
  "the CPU with reopen('cpu')";

// Return a function that calls functions in order, each after the end of the one before.
function queue() {
  let last = Promise.resolve();
  return (work) => {
    const done = last.then(work);
    last = done.catch(() => undefined);
    return done;
  };
}

// DirectML forbids two runs at a time on one session, so each model has a queue. Sessions of all packages are created and
// released one at a time: some drivers crash otherwise.
const oneSessionAtATime = (globalThis[Symbol.for('dmlprep.oneSessionAtATime')] ??= queue());

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

function unreadable(name, folder, error) {
  const what = error?.code === 'ENOENT' ? `is missing in ${path.resolve(folder)}` : `cannot be read (${error?.message})`;
  return new PackageDamaged(name, what, { cause: error });
}

function translated(error) {
  const text = error instanceof Error ? error.message : String(error);
  const find = (codes) => codes.find((code) => text.toUpperCase().includes(code.toUpperCase()));
  const cause = { cause: error };
  let code = find(['887A0005', '887A0006', '887A0007', '887A0020']);
  if (code) return new DeviceRemoved(`the GPU stopped answering (${code}): ${REMOVED}`, cause);
  code = find(['8007000E', 'bad allocation', 'Failed to allocate memory']);
  if (code) return new OutOfMemory(`out of memory (${code}): ${MEMORY}`, cause);
  code = find(['887A0002', '887A0004', 'C0262002']);
  if (code) return new AdapterMissing(`the adapter cannot be used (${code}): choose another, or install its driver`, cause);
  return new ModelError(text, cause);
}

function isOlder(version, lowest) {
  const [a, b] = [version, lowest].map((text) => text.split('.').slice(0, 2).map(Number));
  return a[0] !== b[0] ? a[0] < b[0] : a[1] < b[1];
}

// Return a view of an array with the same bytes as the type's own array; another array as it is.
function inOwnArray(type, data) {
  const isOther = SAME_BYTES[type]?.includes(data?.constructor);
  return isOther ? new ARRAYS[type](data.buffer, data.byteOffset, data.length) : data;
}

const elements = (shape) => shape.reduce((all, size) => all * size, 1);

// Return { bucket, padding } for these sizes: the bucket of exactly these sizes, otherwise the one with the fewest elements
// among those that are as large in every dimension. `padding` is the number of elements to add, by dimension.
function choose(buckets, sizes) {
  if (!buckets.length) throw new BadInput(NO_BUCKETS);
  const known = Object.keys(buckets[0].sizes);
  const strange = Object.keys(sizes).sort().find((name) => !known.includes(name));
  if (strange !== undefined) throw new BadInput(`the buckets have no dimension '${strange}'; they have: ${known.join(', ')}`);
  const missing = known.find((name) => !Object.hasOwn(sizes, name));
  if (missing !== undefined) throw new BadInput(`the size of '${missing}' is missing: the buckets differ in ${known.join(', ')}`);
  const wrong = known.find((name) => !Number.isSafeInteger(sizes[name]) || sizes[name] < 1);
  if (wrong !== undefined) throw new BadInput(`the size of '${wrong}' is ${sizes[wrong]}, but must be a whole number of at least 1`);
  const room = buckets.filter((one) => known.every((name) => one.sizes[name] >= sizes[name]));
  if (!room.length) {
    const wanted = known.map((name) => `${name}=${sizes[name]}`).join(', ');
    throw new BadInput(`no bucket has room for ${wanted}; there are: ${buckets.map((one) => one.name).join(', ')}`);
  }
  const area = (one) => elements(Object.values(one.sizes));
  const bucket = room.reduce((best, one) => (area(one) < area(best) ? one : best));
  const lacking = known.filter((name) => bucket.sizes[name] > sizes[name]);
  return { bucket, padding: Object.fromEntries(lacking.map((name) => [name, bucket.sizes[name] - sizes[name]])) };
}

class Model {
  #folder;
  #options;
  #contract;
  #part; // the chosen bucket (or the contract), its padding, and the sizes of free dimensions: { of, padding, free }
  #runtime = null;
  #sessions = new Map(); // by the name of the bucket; '' without buckets
  #lost = null;
  #inTurn = queue();
  #asked = '';
  #device = '';
  #evidence = '';
  #notice = '';

  static async load(folder = __dirname, options = {}) {
    if (typeof folder !== 'string') throw new TypeError('the folder must be a string: use Model.load(folder, options)');
    const strange = Object.keys(options).find((name) => !OPTIONS.includes(name));
    if (strange !== undefined) throw new TypeError(`unknown option '${strange}': use ${OPTIONS.join(', ')}`);
    const model = new Model(LOADED, folder, options);
    await model.#readContract();
    model.#part = model.#partFor(options.sizes ?? {});
    await model.reopen(options.device ?? 'dml');
    return model;
  }

  constructor(key, folder, options) {
    if (key !== LOADED) throw new TypeError('new Model() loads nothing: use await Model.load(folder)');
    this.#folder = folder;
    this.#options = options;
  }

  get asked() {
    return this.#asked;
  }

  get device() {
    return this.#device;
  }

  get evidence() {
    return this.#evidence;
  }

  get notice() {
    return this.#notice;
  }

  get contract() {
    return this.#contract;
  }

  get inputs() {
    return this.#part.of.inputs;
  }

  get outputs() {
    return this.#part.of.outputs;
  }

  get bucket() {
    return this.#part.of.name ?? '';
  }

  get padding() {
    return this.#part.padding;
  }

  choose(sizes) {
    const { bucket, padding } = choose(this.#buckets, sizes);
    return { bucket: bucket.name, sizes: { ...bucket.sizes }, padding };
  }

  run(inputs) {
    return this.#inTurn(() => this.#run(inputs));
  }

  take(sizes) {
    return this.#inTurn(async () => {
      if (!this.#buckets.length) throw new BadInput(NO_BUCKETS);
      const part = this.#partFor(sizes);
      this.#demandOpen();
      const before = this.#part;
      this.#part = part;
      try {
        if (!this.#sessions.has(this.bucket)) await this.#open(await this.#checked(), this.#device);
      } catch (error) {
        this.#part = before;
        throw error;
      }
    });
  }

  reopen(device = this.#asked) {
    if (!DEVICES.includes(device)) throw new RangeError(`unknown device '${device}': use ${DEVICES.join(', ')}`);
    return this.#inTurn(async () => {
      await this.#close();
      this.#asked = device;
      const contents = await this.#checked();
      try {
        await this.#open(contents, device === 'cpu' ? 'cpu' : 'dml');
      } catch (error) {
        await this.#close();
        if (device !== 'dml-or-cpu') throw error;
        await this.#open(contents, 'cpu');
        this.#notice = `DirectML is not available: the model runs on the CPU, which is slower: ${error.message}`;
        process.emitWarning(this.#notice, { type: 'DmlprepWarning', code: 'DMLPREP_ON_CPU' });
      }
    });
  }

  close() {
    return this.#inTurn(() => this.#close());
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }

  get #buckets() {
    return this.#contract.buckets ?? [];
  }

  #partFor(sizes) {
    if (!this.#buckets.length) return { of: this.#contract, padding: {}, free: sizes };
    const [own, free] = [{}, {}];
    for (const [name, size] of Object.entries(sizes)) (Object.hasOwn(this.#buckets[0].sizes, name) ? own : free)[name] = size;
    const { bucket, padding } = Object.keys(own).length ? choose(this.#buckets, own) : { bucket: this.#buckets[0], padding: {} };
    return { of: bucket, padding, free };
  }

  #demandOpen() {
    if (this.#lost) throw this.#lost;
    if (!this.#sessions.size) throw new ModelError('the model is closed: call reopen()');
  }

  async #close() {
    await this.#release();
    this.#lost = null;
    this.#device = this.#evidence = this.#notice = '';
  }

  // Release the session of one bucket, or all sessions. A session that lost its device can fail here.
  async #release(bucket) {
    for (const [name, session] of [...this.#sessions]) {
      if (bucket !== undefined && bucket !== name) continue;
      this.#sessions.delete(name);
      await oneSessionAtATime(() => session.release()).catch(() => undefined);
    }
  }

  async #bytes(name) {
    let content;
    try {
      content = await (this.#options.read ? this.#options.read(name) : fs.promises.readFile(path.join(this.#folder, name)));
    } catch (error) {
      throw unreadable(name, this.#folder, error);
    }
    if (!content) throw new PackageDamaged(name, 'is missing');
    if (!ArrayBuffer.isView(content)) throw new TypeError(`read('${name}') must return a Uint8Array`);
    return Buffer.from(content.buffer, content.byteOffset, content.byteLength);
  }

  async #readContract() {
    const raw = await this.#bytes(CONTRACT);
    const digest = (await this.#bytes(DIGEST)).toString('latin1');
    if (digest !== `${sha256(raw)}  ${CONTRACT}\n`) throw new PackageDamaged(CONTRACT, `does not match ${DIGEST}`);
    this.#contract = JSON.parse(raw.toString('utf8'));
    if (this.#contract.format !== FORMAT) throw new PackageDamaged(CONTRACT, 'has a format that this loader does not read');
    for (const part of [this.#contract, ...this.#buckets]) {
      for (const { name, type } of [...part.inputs, ...part.outputs]) {
        if (!Object.hasOwn(ARRAYS, type)) throw new ModelError(`'${name}' is ${type}, which this loader does not support`);
      }
    }
  }

  // Check the files against the contract, and return the content of those that the session is created from, by name.
  // Other files are checked only if they are in the folder. ONNX Runtime reads data files in a folder itself.
  async #checked() {
    const { file, data } = this.#part.of.model;
    const contents = {};
    for (const [name, entry] of Object.entries(this.#contract.files)) {
      const needed = name === file || data.includes(name);
      if (!needed && (this.#options.read || !fs.existsSync(path.join(this.#folder, name)))) continue;
      let size;
      let digest;
      if (needed && (this.#options.read || name === file)) {
        contents[name] = await this.#bytes(name);
        [size, digest] = [contents[name].length, sha256(contents[name])];
      } else {
        try {
          [size, digest] = await sha256OfFile(path.join(this.#folder, name));
        } catch (error) {
          throw unreadable(name, this.#folder, error);
        }
      }
      if (size !== entry.bytes) throw new PackageDamaged(name, `has ${size} bytes, but ${CONTRACT} lists ${entry.bytes}`);
      if (digest !== entry.sha256) throw new PackageDamaged(name, `was changed: its SHA-256 is not the one in ${CONTRACT}`);
    }
    return contents;
  }

  // Return onnxruntime-node, after a check that it can run the model on this device.
  #runtimeFor(device) {
    let runtime;
    try {
      runtime = this.#options.runtime ?? require('onnxruntime-node');
    } catch (error) {
      throw new RuntimeMissing(`${error.message.split('\n')[0]}: npm install onnxruntime-node`, { cause: error });
    }
    const version = runtime.env.versions.node;
    const lowest = this.#part.of.target.lowest_onnxruntime;
    if (isOlder(version, lowest)) {
      throw new RuntimeMissing(`onnxruntime-node ${version} is older than ${lowest}, the oldest version for this model`);
    }
    // Without this backend, onnxruntime-node would create the session for the CPU.
    const backends = runtime.listSupportedBackends().map((one) => one.name);
    if (!backends.includes(device)) {
      const fix = "DirectML needs Windows and npm's onnxruntime-node; or use the device 'cpu'";
      throw new RuntimeMissing(`onnxruntime-node ${version} has no backend '${device}' (it has: ${backends.join(', ')}): ${fix}`);
    }
    return runtime;
  }

  async #open(contents, device) {
    const runtime = this.#runtimeFor(device);
    const settings = { executionMode: 'sequential', graphOptimizationLevel: 'all', logSeverityLevel: 3, executionProviders: ['cpu'] };
    if (device === 'dml') {
      const adapter = this.#options.adapter ?? 0;
      if (!Number.isInteger(adapter) || adapter < 0) throw new AdapterMissing(`in Node an adapter is DXGI's number, not ${adapter}`);
      settings.enableMemPattern = false;
      settings.executionProviders = [{ name: 'dml', deviceId: adapter }, 'cpu'];
    }
    const free = new Set(this.inputs.flatMap((one) => one.shape.filter((size) => typeof size === 'string')));
    const strange = Object.keys(this.#part.free).find((name) => !free.has(name));
    const known = [...free, ...Object.keys(this.#buckets[0]?.sizes ?? {})].sort().join(', ');
    if (strange !== undefined) throw new BadInput(`the model has no free dimension '${strange}'; there are: ${known || 'none'}`);
    if (Object.keys(this.#part.free).length) settings.freeDimensionOverrides = this.#part.free;
    const { file, data } = this.#part.of.model;
    const byPath = data.length > 0 && !this.#options.read;
    if (data.length > 0 && !byPath) settings.externalData = data.map((name) => ({ path: name, data: contents[name] }));
    const source = byPath ? path.join(this.#folder, file) : contents[file];
    try {
      this.#sessions.set(this.bucket, await oneSessionAtATime(() => runtime.InferenceSession.create(source, settings)));
    } catch (error) {
      throw translated(error);
    }
    this.#runtime = runtime;
    try {
      if (this.#options.warmUp !== false) await this.#warmUp();
    } catch (error) {
      await this.#release(this.bucket);
      throw error;
    }
    this.#device = device;
    const version = `onnxruntime-node ${runtime.env.versions.node}`;
    this.#evidence = device === 'dml'
      ? `${version} lists the backend dml, and created the session with it`
      : `${version} created the session for the CPU only`;
  }

  #shapeOf(one) {
    return one.shape.map((size) => (typeof size === 'string' ? this.#part.free[size] ?? size : size));
  }

  // Run with zeros, if all sizes are known: the first run compiles shaders.
  async #warmUp() {
    const feeds = {};
    for (const one of this.inputs) {
      const shape = this.#shapeOf(one);
      if (shape.some((size) => typeof size === 'string')) return;
      feeds[one.name] = { data: new ARRAYS[one.type](elements(shape)), shape };
    }
    await this.#run(feeds);
  }

  // Return the tensor of an input, with the same memory, after a check of its type and shape.
  #tensorOf(one, inputs) {
    const given = inputs[one.name];
    if (!given) throw new BadInput(`input '${one.name}' is missing`);
    if (given.type !== undefined && given.type !== one.type) {
      throw new BadInput(`input '${one.name}' is ${given.type}, but the model needs ${one.type}`);
    }
    const wanted = this.#shapeOf(one);
    if (!given.dims && !given.shape) throw new BadInput(`input '${one.name}' has no shape: pass { data, shape }`);
    const shape = Array.from(given.dims ?? given.shape);
    const fits = shape.length === wanted.length && wanted.every((size, axis) => typeof size === 'string' || size === shape[axis]);
    const why = this.bucket ? `; the bucket ${this.bucket} has fixed sizes: pad the input` : '';
    if (!fits) throw new BadInput(`input '${one.name}' is [${shape}], but the model needs [${wanted}]${why}`);
    const kind = ARRAYS[one.type];
    let data;
    try {
      data = inOwnArray(one.type, given.data);
    } catch (error) { // a tensor that was disposed, or is in the memory of a GPU
      throw new BadInput(`input '${one.name}' has no data on the CPU: ${error.message}`, { cause: error });
    }
    if (!(data instanceof kind)) {
      throw new BadInput(`input '${one.name}' is ${data?.constructor?.name ?? 'no array'}, but the model needs ${kind.name} for ${one.type}`);
    }
    if (data.length !== elements(shape)) {
      throw new BadInput(`input '${one.name}' has ${data.length} elements, but its shape has ${elements(shape)}`);
    }
    // Where Node has Float16Array, Tensor makes one from the bits, and onnxruntime-node refuses it as an input
    // (https://github.com/microsoft/onnxruntime/issues/26791). It accepts a plain object with the bits.
    if (one.type === 'float16') return { type: one.type, data, dims: shape, location: 'cpu' };
    return new this.#runtime.Tensor(one.type, data, shape);
  }

  async #run(inputs) {
    this.#demandOpen();
    const feeds = Object.fromEntries(this.inputs.map((one) => [one.name, this.#tensorOf(one, inputs)]));
    const strange = Object.keys(inputs).find((name) => !Object.hasOwn(feeds, name));
    if (strange !== undefined) throw new BadInput(`the model has no input '${strange}'; it has: ${Object.keys(feeds).join(', ')}`);
    let results;
    try {
      results = await this.#sessions.get(this.bucket).run(feeds, this.outputs.map((one) => one.name));
    } catch (error) {
      const known = translated(error);
      if (known instanceof DeviceRemoved || known instanceof OutOfMemory) {
        await this.#close();
        this.#lost = known;
      }
      throw known;
    }
    return Object.fromEntries(this.outputs.map(({ name, type }) => {
      const { data, dims } = results[name];
      return [name, { type, data: inOwnArray(type, data), shape: dims }];
    }));
  }
}

module.exports = {
  Model, ModelError, PackageDamaged, RuntimeMissing, AdapterMissing, BadInput, DeviceRemoved, OutOfMemory, ARRAYS,
};
