'use strict';
// A stand-in for onnxruntime-node. The checks choose its errors and backends.

const pause = () => new Promise((done) => setTimeout(done, 2));

function standIn() {
  const state = { error: '', openError: '', opened: [], backends: ['cpu', 'dml'], inSession: 0, running: 0, opening: 0 };
  const most = { inSession: 0, running: 0, opening: 0 }; // the most at a time: runs of one session, runs, sessions opened or closed
  async function counted(work) {
    for (const [place, name] of work) most[name] = Math.max(most[name], (place[name] += 1));
    await pause();
    for (const [place, name] of work) place[name] -= 1;
  }
  class Tensor {
    constructor(type, data, dims) {
      Object.assign(this, { type, data, dims, location: 'cpu' });
    }
  }
  class InferenceSession {
    inSession = 0;

    static async create(source, settings) {
      state.opened.push([source, settings]);
      await counted([[state, 'opening']]);
      const dml = settings.executionProviders[0] !== 'cpu';
      if (dml && state.openError) throw new Error(state.openError);
      return Object.assign(new InferenceSession(), { dml });
    }

    async run(feeds, wanted) {
      if (this.dml && state.error) throw new Error(state.error);
      await counted([[state, 'running'], [this, 'inSession']]);
      const [first] = Object.values(feeds);
      return Object.fromEntries(wanted.map((name) => [name, new Tensor('float32', Float32Array.from(first.data.slice(0, 10)), [1, 10])]));
    }

    async release() {
      await counted([[state, 'opening']]);
      if (this.dml && state.error) throw new Error(state.error);
    }
  }
  const listSupportedBackends = () => state.backends.map((name) => ({ name, bundled: true }));
  return { state, most, runtime: { InferenceSession, Tensor, listSupportedBackends, env: { versions: { node: '1.24.3' } } } };
}

module.exports = { standIn };
