'use strict';
// A stand-in for onnxruntime-node, whose errors the checks choose.

function standIn() {
  const state = { error: '', openError: '', opened: [], running: 0, atOnce: 0 };
  class Tensor {
    constructor(type, data, dims) {
      Object.assign(this, { type, data, dims });
    }
  }
  class InferenceSession {
    static async create(source, settings) {
      state.opened.push([source, settings]);
      const dml = settings.executionProviders[0] !== 'cpu';
      if (dml && state.openError) throw new Error(state.openError);
      return Object.assign(new InferenceSession(), { dml });
    }

    async run(feeds, wanted) {
      if (this.dml && state.error) throw new Error(state.error);
      state.running += 1;
      state.atOnce = Math.max(state.atOnce, state.running);
      await new Promise((done) => setTimeout(done, 2));
      state.running -= 1;
      const [first] = Object.values(feeds);
      return Object.fromEntries(wanted.map((name) => [name, new Tensor('float32', first.data.slice(0, 10), [1, 10])]));
    }

    async release() {}
  }
  return { state, runtime: { InferenceSession, Tensor, env: { versions: { node: '1.24.3' } } } };
}

module.exports = { standIn };
