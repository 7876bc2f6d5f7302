// Runs the packaged model once: node sample.mjs [dml|cpu|dml-or-cpu] [adapter] [DIM=SIZE ...]. Replace example() by your data.

import { Model, ModelError, ARRAYS } from './dmlprep_model.mjs';

function half(value) { // for values of example(): 0, or 2^-14 and more
  if (value === 0) return 0;
  const bits = new Uint32Array(new Float32Array([value]).buffer)[0];
  const rest = bits - (112 << 23);
  return (rest + 0xfff + ((rest >>> 13) & 1)) >>> 13;
}

function fromHalf(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

// The same numbers in the sample of each language, in the range that the contract knows. A free dimension gets size 1.
function example(one) {
  const shape = one.shape.map((size) => (typeof size === 'string' ? 1 : size));
  const data = new ARRAYS[one.type](shape.reduce((all, size) => all * size, 1));
  const [low, high] = one.range || [0, 1];
  for (let i = 0; i < data.length; i += 1) {
    const real = low + (((i * 37) % 101) / 101) * (high - low);
    const noise = Math.imul(i, 2654435761) >>> 24; // 0 to 255 (Knuth's multiplicative hash)
    const whole = one.range ? low + (noise % (high - low + 1)) : i % 2;
    if (one.type === 'float16') data[i] = half(real);
    else if (one.type.startsWith('float')) data[i] = real;
    else data[i] = one.type.endsWith('int64') ? BigInt(whole) : whole;
  }
  return { data, shape };
}

try {
  const words = process.argv.slice(2);
  const [device = 'dml', adapter = '0'] = words.filter((word) => !word.includes('='));
  const pairs = words.filter((word) => word.includes('=')).map((word) => word.split('='));
  const sizes = Object.fromEntries(pairs.map(([name, size]) => [name, Number(size)]));
  const model = await Model.load(import.meta.dirname, { device, adapter: Number(adapter), sizes });
  console.log(`device ${model.device}`);
  const padding = Object.entries(model.padding).map(([name, count]) => ` ${name}=${count}`).join('');
  if (model.bucket) console.log(`bucket ${model.bucket}, padding${padding || ' none'}`);
  const outputs = await model.run(Object.fromEntries(model.inputs.map((one) => [one.name, example(one)])));
  const expected = Object.keys(sizes).length ? [] : model.contract.sample;
  const printed = (numbers) => numbers.map((value) => value.toFixed(6)).join(' ');
  const different = [];
  for (const [name, { type, data, shape }] of Object.entries(outputs)) {
    const first = Array.from(data.slice(0, 8), (value) => (type === 'float16' ? fromHalf(value) : Number(value)));
    console.log(`${name} ${shape.join('x')} ${printed(first)}`);
    const wanted = expected.find((one) => one.name === name);
    if (!wanted) continue;
    console.log(`  expected ${printed(wanted.first)}`);
    const isNear = (value, place) => Math.abs(first[place] - value) <= wanted.allowed;
    if (wanted.allowed !== null && !wanted.first.every(isNear)) different.push(name);
  }
  await model.close();
  if (different.length) {
    console.error(`NOT as expected: ${different.join(', ')}`);
    process.exitCode = 1;
  } else console.log(expected.some((one) => one.allowed !== null) ? 'as expected' : 'not compared');
} catch (error) {
  console.error(error instanceof ModelError ? `${error.name}: ${error.message}` : error);
  process.exitCode = 1;
}
